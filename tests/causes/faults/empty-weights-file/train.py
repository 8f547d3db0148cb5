import pickle

with open("weights.pkl", "rb") as file:
    weights = pickle.load(file)  # here
