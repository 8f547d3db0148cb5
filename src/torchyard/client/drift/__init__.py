"""Collected data of a deployment compared with the data that its model was trained on."""
