"""The program that takes requests and hands them to instances."""
