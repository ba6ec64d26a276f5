"""Vectors of four float64 for compiled loops that a compiler does not vectorise by itself.

Numba has no such type; these are the few operations the kernel needs, as LLVM's own.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import populate_array

WIDTH = 4
_DOUBLE, _LONG = ir.DoubleType(), ir.IntType(64)
_VEC, _INTS = ir.VectorType(_DOUBLE, WIDTH), ir.VectorType(_LONG, WIDTH)


class Vec(types.Type):
    """Four float64 in one register."""

    def __init__(self) -> None:
        super().__init__(name="Vec4")


vec = Vec()


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type) -> None:
        super().__init__(dmm, fe_type, _VEC)


def _at(context, builder, array_type, array, index):
    """Address of element `index` of a contiguous 1-D array."""
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _call(builder, name, result, args):
    """Call of an LLVM intrinsic."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def _splat(builder, x, kind):
    lane = builder.insert_element(ir.Constant(kind, ir.Undefined), x, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(lane, ir.Constant(kind, ir.Undefined), mask)


@intrinsic
def array_at(typingctx, address, shape, dtype):
    """The array of that shape at an address; whoever passes the address keeps the memory."""
    kind = types.Array(dtype.dtype, len(shape), "C")

    def code(context, builder, signature, args):
        array = context.make_array(kind)(context, builder)
        item = context.get_data_type(kind.dtype)
        size = context.get_constant(types.intp, context.get_abi_sizeof(item))
        sides, strides = cgutils.unpack_tuple(builder, args[1], kind.ndim), [size]
        for side in sides[:0:-1]:
            strides.insert(0, builder.mul(strides[0], side))
        data = builder.inttoptr(args[0], item.as_pointer())
        populate_array(array, data=data, shape=sides, strides=strides, itemsize=size, meminfo=None)
        return array._getvalue()

    return kind(types.int64, types.UniTuple(types.int64, kind.ndim), dtype), code


@intrinsic
def load(typingctx, array, index):
    """Elements index .. index + 3 of a float64 or float32 array (widened)."""

    def code(context, builder, signature, args):
        pointer = _at(context, builder, signature.args[0], *args)
        item = context.get_data_type(signature.args[0].dtype)
        size = 8 if item == _DOUBLE else 4
        pointer = builder.bitcast(pointer, ir.VectorType(item, WIDTH).as_pointer())
        value = builder.load(pointer, align=size, typ=ir.VectorType(item, WIDTH))
        return value if item == _DOUBLE else builder.fpext(value, _VEC)

    return vec(array, types.int64), code


@intrinsic
def store(typingctx, array, index, x):
    """Put x into elements index .. index + 3 of a float64 array."""

    def code(context, builder, signature, args):
        pointer = _at(context, builder, signature.args[0], *args[:2])
        builder.store(args[2], builder.bitcast(pointer, _VEC.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(array, types.int64, vec), code


@intrinsic
def prefetch(typingctx, array, index):
    """Ask for the cache line of element `index`."""

    def code(context, builder, signature, args):
        pointer = _at(context, builder, signature.args[0], *args)
        pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        read_keep_data = [ir.IntType(32)(k) for k in (0, 3, 1)]
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer, *read_keep_data])
        return context.get_dummy_value()

    return types.void(array, types.int64), code


@intrinsic
def splat(typingctx, x):
    """x four times."""

    def code(context, builder, signature, args):
        return _splat(builder, args[0], _VEC)

    return vec(types.float64), code


def _binary(name: str, doc: str):
    def operation(typingctx, x, y):
        def code(context, builder, signature, args):
            return getattr(builder, name)(*args)

        return vec(vec, vec), code

    operation.__doc__ = doc
    return intrinsic(operation)


add = _binary("fadd", "x + y.")
sub = _binary("fsub", "x - y.")
mul = _binary("fmul", "x y.")


@intrinsic
def fma(typingctx, x, y, z):
    """x y + z, rounded once."""

    def code(context, builder, signature, args):
        return _call(builder, "llvm.fma.v4f64", _VEC, args)

    return vec(vec, vec, vec), code


@intrinsic
def larger(typingctx, x, y):
    """The larger of x and y, lane by lane; not for nan."""

    def code(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return vec(vec, vec), code


@intrinsic
def exponent(typingctx, shifted):
    """2^(e - 1023), e the lowest 11 bits of `shifted`."""

    def code(context, builder, signature, args):
        places = ir.Constant(_INTS, [52] * WIDTH)
        return builder.bitcast(builder.shl(builder.bitcast(args[0], _INTS), places), _VEC)

    return vec(vec), code


@intrinsic
def sum_of(typingctx, x):
    """Sum of the four."""

    def code(context, builder, signature, args):
        a, b, c, d = (builder.extract_element(args[0], ir.IntType(32)(k)) for k in range(WIDTH))
        return builder.fadd(builder.fadd(a, c), builder.fadd(b, d))

    return types.float64(vec), code


@intrinsic
def largest_of(typingctx, x):
    """Largest of the four; not for nan."""

    def code(context, builder, signature, args):
        value = args[0]
        for mask in ([2, 3, 0, 1], [1, 0, 3, 2]):
            order = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), mask)
            other = builder.shuffle_vector(value, ir.Constant(_VEC, ir.Undefined), order)
            value = builder.select(builder.fcmp_ordered(">", value, other), value, other)
        return builder.extract_element(value, ir.IntType(32)(0))

    return types.float64(vec), code


@intrinsic
def where_equal(typingctx, x, y):
    """Bits 0 to 3: lanes in which x equals y."""

    def code(context, builder, signature, args):
        same = builder.fcmp_ordered("==", *args)
        return builder.zext(builder.bitcast(same, ir.IntType(WIDTH)), _LONG)

    return types.int64(vec, vec), code


@intrinsic
def replace_equal(typingctx, x, y, z):
    """x, with z in the lanes in which x equals y."""

    def code(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered("==", args[0], args[1]), args[2], args[0])

    return vec(vec, vec, vec), code


@intrinsic
def first_bit(typingctx, bits):
    """Place of the lowest bit that is set; 64 if none is."""

    def code(context, builder, signature, args):
        none = ir.Constant(ir.IntType(1), 0)
        return _call(builder, "llvm.cttz.i64", _LONG, [args[0], none])

    return types.int64(types.int64), code
