#!/opt/none/bash
python train.py
