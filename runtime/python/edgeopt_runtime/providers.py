"""Settings of ONNX Runtime, and what it raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as native

from edgeopt_runtime.errors import BundleError, GraphError, ProviderError, UnsupportedVersionError
from edgeopt_runtime.kernels import Library

__all__ = ["CPU", "RUNTIME_ERRORS", "Options", "Provider", "QuietSession", "listed_options", "listed_providers"]

#: The name of an execution provider, alone or with its options.
Provider = str | tuple[str, Mapping[str, Any]]

CPU = "CPUExecutionProvider"

# ONNX Runtime turns its status codes into exceptions without a common root; the rest arrives as RuntimeError.
RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    native.EPFail,
    native.EngineError,
    native.Fail,
    native.InvalidArgument,
    native.InvalidGraph,
    native.InvalidProtobuf,
    native.NoModel,
    native.NotImplemented,
    native.RuntimeException,
    RuntimeError,
    ValueError,
)

# What went wrong comes as an exception, and is said in ours; the same on stderr beside it would only confuse. Warnings
# of the optimizer about unused initializers and the like are no news to someone who trains.
LOG_FATAL_ONLY = 4


class QuietSession(onnxruntime.InferenceSession):  # type: ignore[misc]  # it ships no type hints
    """A session that raises at once where ONNX Runtime up to 1.20 prints what failed and tries again."""

    def _create_inference_session(self, *args: Any, **settings: Any) -> Any:
        # Those releases do not look at the setting of that name before they try.
        self.disable_fallback()
        return super()._create_inference_session(*args, **settings)


@dataclass(frozen=True)
class Options:
    """How graphs are run.

    Attributes:
        providers: Execution providers in order of preference, as ``onnxruntime.InferenceSession`` takes them; the CPU
            takes what is left over.
        provider_options: Options for each of ``providers``.
        threads: Threads within an operator; None lets ONNX Runtime take one for each core.
        deterministic: Ask for kernels that give the same bits each time.
        library: Native kernels for the operators of this project.
    """

    providers: Sequence[Provider] = (CPU,)
    provider_options: Sequence[Mapping[str, Any]] | None = None
    threads: int | None = None
    deterministic: bool = False
    library: Library = field(default_factory=lambda: Library(None))

    def __post_init__(self) -> None:
        available = onnxruntime.get_available_providers()
        missing = [name for name in self.names if name not in available]
        if missing or not self.providers:
            raise ProviderError(
                f"The execution provider {', '.join(missing) or '(none)'} is not part of this onnxruntime. Available: "
                f"{', '.join(available)}. Install the onnxruntime package that brings it, or choose another."
            )
        if self.provider_options is not None and len(self.provider_options) != len(self.providers):
            raise ProviderError(
                f"There are {len(self.providers)} providers, but options for {len(self.provider_options)}; give one "
                "mapping for each provider, empty if need be."
            )
        if self.threads is not None and (type(self.threads) is not int or self.threads < 1):
            raise ProviderError(f"`threads` must be at least 1 or None, not {self.threads!r}.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the providers without their options."""
        return tuple(provider if isinstance(provider, str) else provider[0] for provider in self.providers)

    @property
    def cpu_only(self) -> bool:
        """Whether all memory is the CPU's."""
        return self.names == (CPU,)

    def open(
        self, file: str, graph: bytes, settle: Callable[[onnxruntime.SessionOptions], None] | None = None
    ) -> onnxruntime.InferenceSession:
        """Make a graph ready to run.

        Args:
            file: Its name, for messages.
            graph: The serialized model.
            settle: Does what else its settings need.

        Raises:
            ProviderError: A provider is available but did not start, for want of its hardware or a library.
            UnsupportedVersionError: The graph needs a newer ONNX Runtime.
            GraphError: ONNX Runtime refuses the graph.
        """
        settings = self._settings(settle)
        providers = [name if isinstance(name, str) else (name[0], dict(name[1])) for name in self.providers]
        options = None if self.provider_options is None else [dict(option) for option in self.provider_options]
        if self.library.path is not None:
            fused = self._settings(settle)
            try:
                self.library.register(fused)
                return QuietSession(graph, fused, providers=providers, provider_options=options, enable_fallback=0)
            except RUNTIME_ERRORS as error:
                # A kernel that knows a program of this graph not, say. If the graph is at fault, that shows below.
                self.library.refused[file] = f"the library refuses {file}: {error}"
        try:
            session = QuietSession(graph, settings, providers=providers, provider_options=options, enable_fallback=0)
        except RUNTIME_ERRORS as error:
            if not self.cpu_only and _opens_on_cpu(graph, settings):
                raise ProviderError(f"{', '.join(self.names)} cannot run {file}: {error}.") from error
            raise _graph_error(file, error) from error
        # Without an exception, ONNX Runtime goes on with the CPU when a provider does not start.
        missing = [name for name in self.names if name not in session.get_providers()]
        if missing:
            raise ProviderError(
                f"The execution provider {', '.join(missing)} did not start for {file}: its hardware or one of its "
                f"libraries is missing, or its options are wrong. Started: {', '.join(session.get_providers())}."
            )
        return session

    def _settings(self, settle: Callable[[onnxruntime.SessionOptions], None] | None) -> onnxruntime.SessionOptions:
        settings = onnxruntime.SessionOptions()
        if settle is not None:
            settle(settings)
        settings.log_severity_level = LOG_FATAL_ONLY
        # From the second run on, a memory pattern takes one block for all that a run needs, beside the arena that the
        # first run has filled and that nothing empties: MiniLM-L6 takes 1016 MiB with it and 704 without, at the same
        # time a step.
        settings.enable_mem_pattern = False
        if self.threads is not None:
            settings.intra_op_num_threads = self.threads
        if self.deterministic:
            settings.use_deterministic_compute = True
            settings.inter_op_num_threads = 1
        return settings


def listed_providers(providers: Provider | Sequence[Provider] | None) -> tuple[Provider, ...]:
    """Providers in order; one alone need not stand in a list, and None means the CPU.

    Raises:
        ProviderError: Something is neither a name nor a name with options.
    """
    if providers is None:
        return (CPU,)
    if isinstance(providers, str) or _has_options(providers):
        return (providers,)
    listed = tuple(providers) if isinstance(providers, (list, tuple)) else (providers,)
    if not all(isinstance(one, str) or _has_options(one) for one in listed):
        raise ProviderError(
            f'Execution providers are given by name, `providers=["{CPU}"]`, or by name and options, not as '
            f"{providers!r}."
        )
    return listed


def listed_options(
    options: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
) -> Sequence[Mapping[str, Any]] | None:
    """The options of each provider; those of one alone need not stand in a list."""
    return (options,) if isinstance(options, Mapping) else options


def _has_options(provider: Any) -> TypeGuard[tuple[str, Mapping[str, Any]]]:
    """Whether it is one provider with its options, and not several."""
    is_pair = isinstance(provider, tuple) and len(provider) == 2
    return is_pair and isinstance(provider[0], str) and isinstance(provider[1], Mapping)


def _opens_on_cpu(graph: bytes, settings: onnxruntime.SessionOptions) -> bool:
    try:
        QuietSession(graph, settings, providers=[CPU])
    except RUNTIME_ERRORS:
        return False
    return True


def _graph_error(file: str, error: Exception) -> BundleError:
    words = str(error)
    if "IR version" in words or "is till opset" in words or "under development" in words:
        return UnsupportedVersionError(
            f"{file} needs a newer ONNX Runtime than {onnxruntime.__version__}: {words}. Update the package."
        )
    return GraphError(f"ONNX Runtime {onnxruntime.__version__} refuses {file}: {words}.")
