from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchEvent(_message.Message):
    __slots__ = ("event_id", "timestamp_ms", "request_id", "user_id", "impression", "click", "add_to_cart", "purchase", "refund")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    IMPRESSION_FIELD_NUMBER: _ClassVar[int]
    CLICK_FIELD_NUMBER: _ClassVar[int]
    ADD_TO_CART_FIELD_NUMBER: _ClassVar[int]
    PURCHASE_FIELD_NUMBER: _ClassVar[int]
    REFUND_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    timestamp_ms: int
    request_id: str
    user_id: str
    impression: Impression
    click: Interaction
    add_to_cart: Interaction
    purchase: Interaction
    refund: Interaction
    def __init__(self, event_id: _Optional[str] = ..., timestamp_ms: _Optional[int] = ..., request_id: _Optional[str] = ..., user_id: _Optional[str] = ..., impression: _Optional[_Union[Impression, _Mapping]] = ..., click: _Optional[_Union[Interaction, _Mapping]] = ..., add_to_cart: _Optional[_Union[Interaction, _Mapping]] = ..., purchase: _Optional[_Union[Interaction, _Mapping]] = ..., refund: _Optional[_Union[Interaction, _Mapping]] = ...) -> None: ...

class Impression(_message.Message):
    __slots__ = ("query", "items", "features", "locale")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LOCALE_FIELD_NUMBER: _ClassVar[int]
    query: str
    items: _containers.RepeatedCompositeFieldContainer[RankedItem]
    features: _struct_pb2.Struct
    locale: str
    def __init__(self, query: _Optional[str] = ..., items: _Optional[_Iterable[_Union[RankedItem, _Mapping]]] = ..., features: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., locale: _Optional[str] = ...) -> None: ...

class RankedItem(_message.Message):
    __slots__ = ("item_id", "position", "features")
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    position: int
    features: _struct_pb2.Struct
    def __init__(self, item_id: _Optional[str] = ..., position: _Optional[int] = ..., features: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Interaction(_message.Message):
    __slots__ = ("item_id",)
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    def __init__(self, item_id: _Optional[str] = ...) -> None: ...
