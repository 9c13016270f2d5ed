"""A model on the validation levels beside reference policies, and what is read from the episodes it left.

answer.py is a process that answers single prompts, for `ragen view --play`.
A reference policy is an entry of `REFERENCES` in evaluate.py; a command that reads episodes is a module here and a thin
file in ragen/cli.
"""
