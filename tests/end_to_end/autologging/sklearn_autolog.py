"""A classifier and a small search, all logged by MLflow itself."""

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split

import mlflow

mlflow.sklearn.autolog()
images, digits = load_digits(n_class=3, return_X_y=True, as_frame=True)
training, testing, labels, expected = train_test_split(images, digits, random_state=7)

search = GridSearchCV(LogisticRegression(max_iter=40), {"C": [0.01, 0.1]}, cv=2)
with mlflow.start_run():
    search.fit(training, labels)
    mlflow.log_metric("accuracy", search.score(testing, expected))
