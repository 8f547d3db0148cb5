# Starts the training with this lab's usual options.
set -e
OPTIONS=(--epochs 3)
if [[ -n "$LEARNING_RATE" ]]; then
  OPTIONS+=(--lr "$LEARNING_RATE")
fi
python train.py "${OPTIONS[@]}"
