"""What is trained: batches, actor, critic and reference, their optimizer and the gradients of their losses.

A `Learner` (learner.py) walks over mini batches and saves itself; actor.py and critic.py say what their loss is.
cross_scoring.py scores every continuation after every prompt, without gradient.

To add a term of the actor's loss, add it in `Actor.terms`; gradients.py then measures it, too. To add something that is
trained, write a subclass of `Learner` with a loss, and build it in trainer/build.py.
"""
