"""Golden cases: files of JSON rows that say what a part of the product answers, and the program that asks it.

``python -m tests.cases KIND FILE``. A runner of a kind builds what a row describes, calls the product and compares;
it knows the form of the rows, and no rule that they pin.
"""
