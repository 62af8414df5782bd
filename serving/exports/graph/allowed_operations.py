"""The operations that a served graph may contain: none accesses a file, a network, Python or another request.

All other operations are refused. Left out on purpose: readers and writers of files
(ReadFile, InitializeTableFromTextFileV2, datasets), PyFunc and XLA's custom calls, tables and queues that can be
written to, variables' assignments: state that one request writes and another reads.
"""

from typing import Any


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


FLOW = _names("""
    Const Placeholder PlaceholderWithDefault NoOp Identity IdentityN StopGradient PreventGradient EnsureShape Assert
    CheckNumerics _Arg _Retval If StatelessIf While StatelessWhile Case StatelessCase PartitionedCall
    StatefulPartitionedCall Switch Merge Enter Exit NextIteration LoopCond FakeParam
""")
VARIABLES = _names("VarHandleOp ReadVariableOp VarIsInitializedOp ResourceGather ResourceGatherNd DisableCopyOnRead")
TABLES = _names("""
    HashTableV2 LookupTableFindV2 LookupTableSizeV2 LookupTableExportV2 LookupTableImportV2 InitializeTableV2
    AnonymousHashTable
""")
SHAPES = _names("""
    Shape ShapeN Size Rank Reshape ExpandDims Squeeze BroadcastTo BroadcastArgs Tile Fill ZerosLike OnesLike Range
    LinSpace Pack Unpack Concat ConcatV2 ConcatOffset Split SplitV Slice StridedSlice Pad PadV2 MirrorPad Transpose
    ConjugateTranspose InvertPermutation Reverse ReverseV2 ReverseSequence Roll Gather GatherV2 GatherNd ScatterNd
    TensorScatterUpdate TensorScatterAdd OneHot Where Select SelectV2 Cast Bitcast MatrixDiagV3 MatrixDiagPartV3
    MatrixSetDiagV3 MatrixBandPart DynamicPartition DynamicStitch ParallelDynamicStitch BatchToSpaceND SpaceToBatchND
    Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 TopK TopKV2 DepthToSpace SpaceToDepth DeepCopy BooleanMask
    SparseToDense SparseReshape SparseSlice SparseConcat SparseFillEmptyRows SparseReorder SparseTensorDenseMatMul
    SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN DenseToDenseSetOperation SparseToSparseSetOperation
    DenseToSparseSetOperation LowerBound UpperBound Bincount DenseBincount RaggedBincount
""")
RAGGED = _names("""
    RaggedRange RaggedGather RaggedCross RaggedTensorToTensor RaggedTensorToSparse RaggedTensorToVariant
    RaggedTensorFromVariant RaggedTensorToVariantGradient
""")
LISTS = _names("""
    TensorListReserve TensorListFromTensor TensorListGetItem TensorListSetItem TensorListStack TensorListLength
    TensorListElementShape TensorListPushBack TensorListPopBack TensorListGather TensorListScatter TensorListConcat
    TensorListConcatV2 TensorListSplit TensorListScatterV2 TensorListResize EmptyTensorList TensorArrayV3
    TensorArrayReadV3 TensorArrayWriteV3 TensorArrayGatherV3 TensorArrayScatterV3 TensorArraySizeV3 TensorArrayCloseV3
""")
ARITHMETIC = _names("""
    Add AddV2 AddN Sub Mul MulNoNan Div DivNoNan RealDiv FloorDiv TruncateDiv FloorMod TruncateMod Mod Neg Abs Sign
    Square SquaredDifference Sqrt Rsqrt Reciprocal Inv Pow Exp Expm1 Log Log1p Xlogy Xlog1py Sin Cos Tan Asin Acos Atan
    Atan2 Sinh Cosh Tanh Asinh Acosh Atanh Erf Erfc Erfinv Lgamma Digamma Sigmoid Maximum Minimum Floor Ceil Round Rint
    ClipByValue IsNan IsInf IsFinite Equal NotEqual ApproximateEqual Less LessEqual Greater GreaterEqual LogicalAnd
    LogicalOr LogicalNot BitwiseAnd BitwiseOr BitwiseXor Invert LeftShift RightShift AccumulateNV2 NextAfter
""")
REDUCTIONS = _names("""
    Sum Mean Prod Max Min All Any ArgMax ArgMin Cumsum Cumprod CumulativeLogsumexp EuclideanNorm L2Loss SegmentSum
    SegmentMean SegmentMax SegmentMin SegmentProd UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin
    UnsortedSegmentProd SegmentSumV2 SegmentMeanV2 SegmentMaxV2 SegmentMinV2
""")
_LAYERS = _names("""
    MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum Cross BiasAdd BiasAddV1 Relu Relu6 LeakyRelu Elu Selu Softplus
    Softsign Softmax LogSoftmax FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 Conv1D Conv2D DepthwiseConv2dNative
    AvgPool MaxPool MaxPoolV2 _FusedMatMul QuantizeAndDequantizeV2 QuantizeAndDequantizeV4 FakeQuantWithMinMaxVars
    FakeQuantWithMinMaxVarsPerChannel Bucketize
""")
RANDOM = _names("""
    RandomUniform RandomStandardNormal TruncatedNormal RandomUniformInt RandomShuffle StatelessRandomUniform
    StatelessRandomUniformV2 StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomGetKeyCounter
    StatelessRandomGetAlg StatelessRandomGetKeyCounterAlg StatelessRandomUniformInt StatelessRandomUniformIntV2
""")
STRINGS = _names("""
    AsString StringToNumber StringJoin StringFormat StringLength StringLower StringUpper StringStrip StringSplit
    StringSplitV2 StringNGrams Substr ReduceJoin RegexReplace StaticRegexReplace RegexFullMatch StaticRegexFullMatch
    StringToHashBucket StringToHashBucketFast StringToHashBucketStrong UnsortedSegmentJoin UnicodeDecode
    UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript UnicodeTranscode DecodeRaw DecodePaddedRaw
""")
TEXT = _names("""
    CaseFoldUTF8 NormalizeUTF8 NormalizeUTF8WithOffsetsMap FindSourceOffsets FastBertNormalize
    FastWordpieceTokenizeWithOffsets FastWordpieceDetokenize TFText>FastWordpieceTokenizeWithOffsets
    TFText>FastWordpieceDetokenize TFText>FastBertNormalize WordpieceTokenizeWithOffsets
    UnicodeScriptTokenizeWithOffsets WhitespaceTokenizeWithOffsets WhitespaceTokenizeWithOffsetsV2
    TFText>WhitespaceTokenizeWithOffsetsV2 TFText>RoundRobinTrim RoundRobinTrim SplitMergeTokenizeWithOffsets
    TFText>RoundRobinGenerateMasks RoundRobinGenerateMasks TFText>NgramsStringJoin ConstrainedSequence WordshapeOp
    TFText>UtfToUtf
""")
_EXAMPLES = _names("""
    ParseExample ParseExampleV2 ParseSingleExample ParseSequenceExample ParseSequenceExampleV2
    ParseSingleSequenceExample DecodeProtoV2
""")

ALLOWED = FLOW.union(
    VARIABLES, TABLES, SHAPES, RAGGED, LISTS, ARITHMETIC, REDUCTIONS, _LAYERS, RANDOM, STRINGS, TEXT, _EXAMPLES
)

# Every SavedModel carries these in the functions that save and restore its variables. The gateway never calls those
# functions, and refuses a model where anything else calls them.
WRITES_FILES = _names("SaveV2 MergeV2Checkpoints")
SAVER_ONLY = WRITES_FILES | _names("RestoreV2 ShardedFilename AssignVariableOp")


def refusal_of(node: Any) -> str | None:
    """Returns why a NodeDef that calls no function is refused, or None. The caller handles SAVER_ONLY operations."""
    if node.op not in ALLOWED:
        return f"operation {node.op} is not allowed"
    if node.op == "DecodeProtoV2":
        source = node.attr["descriptor_source"].s
        # anything else is the path of a file to read
        if source and not source.startswith((b"bytes://", b"local://")):
            return "operation DecodeProtoV2 reads its descriptor from a file"
    return None
