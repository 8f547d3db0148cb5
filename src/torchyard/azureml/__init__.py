"""Azure ML's protocols: foreign requests become actions of the rooms, answers Azure's JSON."""
