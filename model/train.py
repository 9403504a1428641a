"""Train a model from a recipe; a killed run goes on with --resume from its last checkpoint."""

import itertools
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from model.checkpoint import (
    RESUMABLE,
    TOKENIZER,
    Checkpoint,
    CheckpointMeta,
    CurveLog,
    CurvePoint,
    build_model,
    load_checkpoint,
    load_trainer_state,
    mean_weights,
    require_same_recipe,
    save_checkpoint,
    step_directories,
    step_name,
    write_recipe,
)
from model.corpus import Pair, read_corpus, read_dev_set, split_held_out
from model.data import BatchGroups, EpochBatches, TrainingBatch
from model.evaluate import mean_nll, require_bleu_tokenizer, score_translations, translate_greedily
from model.layers import Dropout
from model.loss import projected_cross_entropy
from model.optimizer import (
    FASTEST,
    PRECISION_HELP,
    build_optimizer,
    choose_device,
    choose_precision,
    learning_rate,
)
from model.recipe import Recipe, load_recipe
from model.tokenizer import Tokenizer, train_tokenizer

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

_SHOW_EVERY = 10  # updates between looks at the loss, for each of which a GPU is waited for
_LOG_EVERY = 50  # updates between lines where there is no terminal


@dataclass(slots=True, kw_only=True)
class TrainingProgress:
    """Position of a run; with weights and optimiser state, all that a resumed run needs."""

    update: int = 0
    epoch: int = 0
    batch: int = 0  # batches of the epoch already trained on
    target_tokens: int = 0
    seconds: float = 0.0  # of updates, input included
    elapsed_s: float = 0.0  # of all, validations and checkpoints included
    best_loss: float = float("inf")
    best_update: int | None = None  # the update that had `best_loss`; None before the first validation
    validations_without_gain: int = 0


class Trainer:
    """One run: batches in, updated weights and checkpoints out."""

    def __init__(
        self,
        recipe: Recipe,
        data: Path,
        run: Path,
        *,
        device: torch.device,
        precision: torch.dtype,
        initial: Checkpoint | None = None,
        tokenizer: Path | None = None,
    ) -> None:
        """Read the data and build the model, in `run`.

        With `initial` it starts from these weights and their tokenizer instead of random ones; with `tokenizer`, a
        file, from random weights and this one.  A run that has checkpoints continues from these.

        Raises:
            ValueError: `initial` has another shape than the recipe's model, there is nothing to train on or to validate
                on, or sacrebleu has no such tokenizer.
            FileNotFoundError: a corpus or a development set is missing.
        """
        if initial is not None and initial.config != recipe.config:
            given, wanted = asdict(initial.config), asdict(recipe.config)
            names = [name for name in wanted if given[name] != wanted[name]]
            differences = [f"{name} is {given[name]}, the recipe asks for {wanted[name]}" for name in names]
            raise ValueError(f"the initial weights do not fit: {'; '.join(differences)}")
        require_bleu_tokenizer(recipe.schedule.bleu_tokenizer)
        self.recipe = recipe
        self.run = run
        self.device = device
        self.precision = precision
        self.console = Console(stderr=True)
        pairs: list[Pair] = []
        following: dict[Pair, Pair] = {}
        for corpus in recipe.corpora:
            found = read_corpus(data, corpus, recipe.languages, recipe.seed)
            self.console.log(f"{corpus.name}: {len(found):,} pairs")
            pairs += found
            if corpus.document:
                following |= itertools.pairwise(found)
        if not pairs:
            raise ValueError(f"the corpora of recipe {recipe.name} have no pairs")
        schedule = recipe.schedule
        pairs, held_out = split_held_out(pairs, schedule.held_out)
        trained_on = set(pairs)
        following = {pair: after for pair, after in following.items() if after in trained_on}
        self.tokenizer_path = run / TOKENIZER
        self.tokenizer = self._tokenizer(pairs, initial.tokenizer_path if initial else tokenizer)
        if self.tokenizer.vocab_size != recipe.config.vocab_size:
            raise ValueError(
                f"the tokenizer has {self.tokenizer.vocab_size:,} pieces, the recipe asks for "
                f"{recipe.config.vocab_size:,}: set model.vocab_size and tokenizer.vocab_size to the same number"
            )
        self.batches = EpochBatches(
            pairs,
            self.tokenizer,
            recipe.batches,
            recipe.augmentation,
            recipe.seed,
            languages=recipe.languages,
            following=following,
        )
        self.dev_pairs = [
            pair
            for name in schedule.validation_sets
            for pair in read_dev_set(data, name, recipe.languages)[: schedule.validation_sentences]
        ]
        self.dev_pairs += random.Random(recipe.seed).sample(held_out, min(len(held_out), schedule.validation_sentences))
        if not self.dev_pairs:
            raise ValueError(f"schedule.held_out is {schedule.held_out}, which holds none of {len(pairs):,} pairs out")
        self.model = build_model(recipe.config, recipe.optimizer.dropout).initialize(recipe.seed).to(device)
        if initial is not None:
            self.model.load_state_dict(initial.weights)
        self.optimizer = build_optimizer(self.model, recipe.optimizer, precision)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision is torch.float16)
        self.progress = TrainingProgress()
        self.curve = CurveLog(run)
        self._began = 0.0  # on the clock, as if the run had never been interrupted

    def resume(self) -> None:
        """Continue from the newest checkpoint of the run; from the start where there is none."""
        checkpoints = step_directories(self.run)
        if not checkpoints:
            return
        state = load_trainer_state(checkpoints[-1])
        self.model.load_state_dict(load_checkpoint(checkpoints[-1]).weights)
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:  # empty unless the run was in fp16 so far
            self.scaler.load_state_dict(state["scaler"])
        self.progress = TrainingProgress(**state["progress"])
        self.console.log(f"resumed at update {self.progress.update}")

    def train(self) -> None:
        """Update until the recipe's schedule ends, or until validation stops improving; then average."""
        schedule, progress = self.recipe.schedule, self.progress
        self._began = time.monotonic() - progress.elapsed_s
        self.curve.truncate(progress.update)  # a kill may have come between a point and its checkpoint
        self.console.log(f"{self.model.num_parameters:,} parameters on {self.device}, {self.precision}")
        size = self.recipe.optimizer.accumulate_batches
        groups = BatchGroups(self.batches, size, epoch=progress.epoch, skip=progress.batch)
        made = iter(groups) if self.device.type == "cpu" else groups.prefetched()  # the cores of a CPU are busy
        position = self._position()
        with self._progress_bar() as bar:
            task = bar.add_task("training", total=schedule.max_updates, completed=int(position), loss=0.0, speed=0.0)
            loss_sum: float | torch.Tensor = 0.0
            num_tokens = 0
            while position < schedule.max_updates and not self._has_stalled():
                started = time.monotonic()
                group = next(made)
                loss, tokens = self._update(group.batches)
                progress.epoch, progress.batch = group.epoch, group.batch
                progress.seconds += time.monotonic() - started
                loss_sum, num_tokens = loss_sum + loss, num_tokens + tokens
                before, position = position, self._position()
                self._report(bar, task, position, loss / tokens)
                is_due = position // schedule.validate_every > before // schedule.validate_every
                if is_due or position == schedule.max_updates:
                    self._validate(float(loss_sum / num_tokens))
                    loss_sum, num_tokens, position = 0.0, 0, self._position()
        if self._has_stalled():
            self.console.log("validation loss stopped improving")
        self.console.log(
            f"{progress.update:,} updates, {progress.target_tokens:,} target tokens in "
            f"{progress.seconds / 60:.1f} minutes, {self._speed():,.0f} a second"
        )
        self.average()

    def average(self) -> Path:
        """Write the mean of the last checkpoints as RUN/average; after a stall, of the last up to the best.

        The paper averages the last ones.  After a stall they are all worse than the best one, so the mean is taken of
        those that end with it, as with Sockeye's strategy "last".
        """
        checkpoints = step_directories(self.run)
        averaged = self._up_to_best(checkpoints) if self._has_stalled() else checkpoints
        averaged = averaged[-self.recipe.schedule.average_last :]
        last = load_checkpoint(averaged[-1])
        directory = self.run / "average"
        weights = mean_weights(load_checkpoint(path).weights for path in averaged)
        save_checkpoint(directory, replace(last, weights=weights, meta=replace(last.meta, scores={})))
        self.console.log(f"average of {len(averaged)} checkpoints up to update {last.meta.update} in {directory}")
        return directory

    def _up_to_best(self, checkpoints: list[Path]) -> list[Path]:
        """The checkpoints that end with the best one; all of them where it is unknown or gone."""
        best = self.progress.best_update
        up_to_best = [path for path in checkpoints if best is not None and path.name <= step_name(best)]
        return up_to_best or checkpoints

    def _has_stalled(self) -> bool:
        return self.progress.validations_without_gain >= self.recipe.schedule.patience

    def _position(self) -> float:
        """How many updates of the recipe's schedule are over: those done, or the same share of its minutes."""
        schedule = self.recipe.schedule
        if schedule.minutes is None:
            return self.progress.update
        share = (time.monotonic() - self._began) / (60 * schedule.minutes)
        return min(share, 1.0) * schedule.max_updates

    def _speed(self) -> float:
        """Target tokens a second."""
        return self.progress.target_tokens / max(self.progress.seconds, 1e-9)

    def _update(self, batches: list[TrainingBatch]) -> tuple[torch.Tensor, int]:
        """Do one optimiser update; return the smoothed loss summed over its target tokens, and their number.

        The loss stays on the device: to read it is to wait for all that was launched.
        """
        optimizer = self.recipe.optimizer
        Dropout.seed(self.recipe.seed, self.progress.update)
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self._position() + 1, optimizer, self.recipe.schedule.max_updates)
        num_tokens = sum(int((batch.target_outputs != 0).sum()) for batch in batches)
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        for batch in batches:
            loss = self._loss(batch.to(self.device))
            self.scaler.scale(loss / num_tokens).backward()  # type: ignore[no-untyped-call]
            loss_sum += loss.detach()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), optimizer.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.progress.update += 1
        self.progress.target_tokens += num_tokens
        return loss_sum, num_tokens

    def _loss(self, batch: TrainingBatch) -> torch.Tensor:
        with torch.autocast(self.device.type, self.precision, enabled=self.precision is not torch.float32):
            memory = self.model.encode(batch.source, batch.source_lengths)
            states = self.model.decode(batch.target_inputs, memory, batch.source_lengths)
        smoothing = self.recipe.optimizer.label_smoothing
        return projected_cross_entropy(states, self.model.embedding.weight, batch.target_outputs, smoothing).smoothed

    def _validate(self, train_loss: float) -> None:
        self.model.eval()
        with torch.autocast(self.device.type, self.precision, enabled=self.precision is not torch.float32):
            dev_loss = mean_nll(self.model, self.dev_pairs, self.tokenizer)
            translations = translate_greedily(self.model, [pair.source for pair in self.dev_pairs], self.tokenizer)
        references = [pair.target for pair in self.dev_pairs]
        scores = score_translations(translations, references, self.recipe.schedule.bleu_tokenizer)
        progress = self.progress
        progress.validations_without_gain += 1
        if dev_loss < progress.best_loss:
            progress.best_loss, progress.best_update, progress.validations_without_gain = dev_loss, progress.update, 0
        point = CurvePoint(
            update=progress.update,
            epoch=progress.epoch,
            minutes=round(progress.seconds / 60, 2),
            target_tokens=progress.target_tokens,
            learning_rate=self.optimizer.param_groups[0]["lr"],
            train_loss=round(train_loss, 4),
            dev_loss=round(dev_loss, 4),
            dev_bleu=round(scores.bleu, 2),
            dev_chrf=round(scores.chrf, 2),
        )
        self.curve.append(point)
        self.console.log(
            f"update {point.update}: train {train_loss:.3f}, dev {dev_loss:.3f}, "
            f"BLEU {scores.bleu:.1f}, chrF {scores.chrf:.1f}"
        )
        self._save({"dev_loss": dev_loss, "dev_bleu": scores.bleu, "dev_chrf": scores.chrf})

    def _save(self, scores: dict[str, float]) -> None:
        self.progress.elapsed_s = time.monotonic() - self._began
        languages = self.recipe.languages
        checkpoint = Checkpoint(
            config=self.recipe.config,
            meta=CheckpointMeta(
                name=self.recipe.name,
                source_language=languages.source,
                target_language=languages.target,
                update=self.progress.update,
                scores=scores,
            ),
            weights=self.model.state_dict(),
            tokenizer_path=self.tokenizer_path,
        )
        trainer_state: dict[str, Any] = {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "progress": asdict(self.progress),
        }
        save_checkpoint(self.run / step_name(self.progress.update), checkpoint, trainer_state)
        # Keep the newest checkpoints, and those that `average` takes if there is no better one to come.
        schedule, checkpoints = self.recipe.schedule, step_directories(self.run)
        kept = {*checkpoints[-schedule.keep_last :], *self._up_to_best(checkpoints)[-schedule.average_last :]}
        for old in checkpoints:
            if old not in kept:
                shutil.rmtree(old)

    def _tokenizer(self, pairs: list[Pair], given: Path | None) -> Tokenizer:
        """The tokenizer of the run's checkpoints; before there are any, the given or a new one."""
        checkpoints = step_directories(self.run)
        if checkpoints:
            shutil.copyfile(checkpoints[-1] / TOKENIZER, self.tokenizer_path)
        elif given is not None:
            shutil.copyfile(given, self.tokenizer_path)
        else:
            self.console.log("training the tokenizer")
            sentences = itertools.chain.from_iterable(pairs)
            return train_tokenizer(sentences, self.tokenizer_path, **asdict(self.recipe.tokenizer))
        return Tokenizer.load(self.tokenizer_path)

    def _progress_bar(self) -> Progress:
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.3f}  {task.fields[speed]:,.0f} tokens/s"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )

    def _report(self, bar: Progress, task: Any, position: float, loss: float | torch.Tensor) -> None:
        update = self.progress.update
        bar.update(task, completed=position)
        if update % _SHOW_EVERY == 0:
            bar.update(task, loss=float(loss), speed=self._speed())
        if not self.console.is_terminal and update % _LOG_EVERY == 0:
            self.console.log(f"update {update}: loss {float(loss):.3f}, {self._speed():,.0f} target tokens/s")


@app.command()
def main(
    recipe: Annotated[Path, typer.Argument(help="Recipe file, for instance model/recipes/en-de.toml.")],
    data: Annotated[Path, typer.Option(help="Directory with train/NAME/NAME.LANG.gz and dev/NAME.LANG.gz.")],
    out: Annotated[Path, typer.Option(help="Run directory: checkpoints, tokenizer, curve.csv, curve.png.")],
    resume: Annotated[bool, typer.Option(help="Go on from the newest checkpoint in --out.")] = False,
    init: Annotated[
        Path | None,
        typer.Option(help="Start from these weights and their tokenizer: a checkpoint, or a bundle that kept its own."),
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="SentencePiece model of the recipe's size, instead of a new one.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    precision: Annotated[str, typer.Option(help=PRECISION_HELP)] = FASTEST,
    max_updates: Annotated[int | None, typer.Option(min=1, help="Instead of the recipe's; 2 is a smoke test.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Stretch or cut the recipe's schedule to this time, validations included.")
    ] = None,
) -> None:
    """Train a translation model.

    Example: python -m model.train model/recipes/en-de.toml --data DATA --out RUN
    """
    if max_updates is not None and minutes is not None:
        raise typer.BadParameter("--max-updates and --minutes are given, only one of them can end the run")
    if init is not None and tokenizer is not None:
        raise typer.BadParameter("--init and --tokenizer are given, and --init brings its own")
    if not resume and step_directories(out):
        raise typer.BadParameter(f"{out} holds a run already: add --resume to go on, or choose another --out")
    try:
        initial = load_checkpoint(init) if init else None
        loaded = load_recipe(recipe)
        if max_updates is not None:
            loaded = replace(loaded, schedule=replace(loaded.schedule, max_updates=max_updates))
        if minutes is not None:
            loaded = replace(loaded, schedule=replace(loaded.schedule, minutes=minutes))
        trainer = prepare_run(
            loaded, data, out, device=device, precision=precision, initial=initial, tokenizer=tokenizer
        )
    except (ValueError, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from error
    if resume:
        trainer.resume()
    trainer.train()


def prepare_run(
    recipe: Recipe,
    data: Path,
    out: Path,
    *,
    device: str,
    precision: str,
    initial: Checkpoint | None = None,
    tokenizer: Path | None = None,
    may_differ: Sequence[str] = RESUMABLE,
) -> Trainer:
    """Make a run's directory, write the recipe down there, and return the trainer.

    `device` and `precision` are as for `choose_device` and `choose_precision`; `may_differ` has the keys in which the
    recipe may differ from the one that the run was begun with.

    Raises:
        ValueError, FileNotFoundError: the recipe differs elsewhere, there is no such device or precision, or what the
            trainer reads is missing or wrong.
    """
    where = choose_device(device)
    chosen = choose_precision(precision, where)
    out.mkdir(parents=True, exist_ok=True)
    require_same_recipe(out, recipe, may_differ)
    trainer = Trainer(recipe, data, out, device=where, precision=chosen, initial=initial, tokenizer=tokenizer)
    write_recipe(out, recipe)
    return trainer


if __name__ == "__main__":
    app(prog_name="python -m model.train")
