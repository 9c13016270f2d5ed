"""Several runs read as one study: how each ended (`outcomes`), the conditions that seeds repeat (`conditions`), arms
that are given as folders (`arms`), and whether one is better than another (`comparison`). No torch.
"""
