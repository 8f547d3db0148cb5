# Trains on one node.
EPOCHS=3
SCHEDULE=cosine
python train.py --epochs $EPOCHS --schedule $SCHEDULE
