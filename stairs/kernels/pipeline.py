"""The compiler of kernels: numba's own without the parts that kernels do not need.

numba makes a library of each function, optimises it and emits machine code for it, and then does the same in each
caller. A step of kernels needs neither, since Python cannot call it. So a step is a `StepLibrary`: its code is kept as
it is, and optimised and emitted within the kernels that use it. That halves the time.

Three smaller savings, a fifth of the rest together: passes for closures, array expressions and the like are left out;
the types of operations on numbers are looked up once per process; and options compare by what was set.

numba documents compilers with passes of one's own; libraries and typing contexts are internal to it. So
pyproject.toml admits only versions of numba for which this was tested.
"""

from __future__ import annotations

from typing import Any

from llvmlite.binding import create_pass_builder, create_pipeline_tuning_options
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, Flags
from numba.core.compiler_machinery import LoweringPass, PassManager, register_pass
from numba.core.typed_passes import (
    AnnotateTypes,
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.types import Boolean, Dispatcher, Function, Number
from numba.core.types.misc import unliteral
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FixupArgs,
    GenericRewrites,
    IRProcessing,
    ReconstructSSA,
    RewriteSemanticConstants,
    TranslateByteCode,
)

__all__ = ["KernelCompiler"]

KNOWN: dict[Any, Any] = {}
"""The signature of each operation on numbers that was typed in this process."""


class _Environments:
    """Takes the place of the registry of environments: code that is not emitted has no variable for its own.

    An environment is used to raise errors with values, which kernels do not.
    """

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing."""


class StepLibrary(JITCodeLibrary):
    """The code of a step, for other libraries to link: not optimised as a whole, no machine code, not cached."""

    def _optimize_functions(self, ll_module: Any) -> None:
        # A loop that is peeled, unrolled or unswitched (level 3) here would call each of its steps several times.
        options = create_pipeline_tuning_options(speed_level=2)
        options.loop_unrolling = False
        builder = create_pass_builder(self._codegen._tm, options)
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            builder.getFunctionPassManager().run(function, builder)

    def finalize(self) -> None:
        """Link the steps that this one calls."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0, "not emitted"."""
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> Any:
        """The environments alone; the methods of this class use `_codegen`."""
        return _Environments()


@register_pass(mutates_CFG=False, analysis_only=False)
class MakePart(LoweringPass):
    """Pass that gives a step a library of its own kind; numba gives the usual one to functions without."""

    _name = "eddy_make_part"

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Set the library of a step; return whether the step itself changed."""
        if state.flags.no_cpython_wrapper:
            state.library = StepLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


class Typing:
    """A typing context that remembers operations on numbers: numba tries some ten templates for each.

    A step that is called with constants is the same as with other numbers: numba would compile it for each constant.
    """

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """Return the signature of `func` for types of arguments."""
        if isinstance(func, Dispatcher):
            args = [unliteral(argument) for argument in args]
        if (
            kws
            or not isinstance(func, Function)
            or not all(isinstance(argument, (Number, Boolean)) for argument in args)
        ):
            return self._context.resolve_function_type(func, args, kws)
        key = func, tuple(args)
        signature = KNOWN.get(key)
        if signature is None:
            signature = KNOWN[key] = self._context.resolve_function_type(func, args, kws)
        return signature


@register_pass(mutates_CFG=True, analysis_only=False)
class InferTypes(NopythonTypeInference):
    """numba's inference of types, over `Typing`."""

    _name = "eddy_infer_types"

    def run_pass(self, state: Any) -> bool:
        """Set the types of all variables; return whether the function changed."""
        context = state.typingctx
        state.typingctx = Typing(context)
        try:
            return bool(super().run_pass(state))
        finally:
            state.typingctx = context


class CompilationOptions(Flags):
    """numba's options of a compilation: it looks each implementation of an operation up by them.

    Its own comparison computes some thirty properties on each side, which was a sixth of the time.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(frozenset(self._values))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompilationOptions) and bool(self._values == other._values)


class Passes(PassManager):
    """Passes without a recomputation of the lives of variables after each: `IRProcessing` and others compute them."""

    _ENFORCING = False


class KernelCompiler(CompilerBase):
    """The compiler of kernels and their steps."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.state.flags = CompilationOptions(self.state.flags)

    def define_pipelines(self) -> list[PassManager]:
        """Return the only pipeline."""
        passes = Passes("kernel")
        for compiler_pass in (
            TranslateByteCode,
            FixupArgs,
            IRProcessing,
            RewriteSemanticConstants,
            DeadBranchPrune,
            GenericRewrites,
            ReconstructSSA,
            InferTypes,
            PreLowerStripPhis,
            IRLegalization,
            AnnotateTypes,
            MakePart,
            NativeLowering,
            NoPythonBackend,
        ):
            passes.add_pass(compiler_pass, compiler_pass.__name__)
        passes.finalize()
        return [passes]
