"""What is trained: batches, actor, critic, reference, their optimizers and gradients."""
