set -e
python train.py
echo trained
