"""torchyard.train in other frameworks' training loops.

Owns: one module for each framework: `transformers`, `accelerate`, `deepspeed`, `lightning`, `ray`.
Leaves: when to save and what a state is made of to the frameworks.
Always: a module is imported by those who name it, and none imports another.
"""
