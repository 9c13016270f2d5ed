"""The model card of a merged model."""

import yaml

from ragen.sft.card import sft_card
from tests.sft.supervised import configured

ROWS = [
    {"step": 0, "sft/val_loss": 0.9},
    {"step": 1, "sft/train_loss": 0.8},
    {"step": 2, "sft/val_loss": 0.3},
    {"step": 4, "sft/val_loss": 0.5},
]
PLAYED = [["FrozenLake", "greedy", "0.500 [0.4, 0.6]"]]


def test_the_card_tells_the_best_loss_and_what_the_model_plays():
    config, sft = configured("lora.rank=4", "sft.noise=0.25", "sft.output_dir=/home/somebody/out")
    text = sft_card(config, sft, rows=ROWS, played=PLAYED, columns=("policy", "success [95 %]"))
    assert "0.3000 at step 2, which is this model, after 0.9000 before the training" in text
    assert "| environment | policy | success [95 %] |" in text and "| FrozenLake | greedy | 0.500 [0.4, 0.6] |" in text
    assert "for 2 epochs on demonstrations of the solver of FrozenLake (LoRA of rank 4, merged)" in text
    assert "24 levels of each environment, made from the seeds from 100000 on; 25% of the replies" in text
    assert "sft.epochs: 2" in text and "somebody" not in text
    words = yaml.safe_load(text.split("---")[1])["tags"]
    assert words == ["ragen", "supervised-fine-tuning", "multi-turn", "FrozenLake"]


def test_what_is_not_known_is_not_told():
    config, sft = configured("lora.rank=0")
    text = sft_card(config, sft, rows=ROWS[2:3])
    assert "which is this model." in text and "(all weights)" in text
    assert "Its validation levels were not played." in text
    assert "Loss per token" not in sft_card(config, sft, rows=[])
