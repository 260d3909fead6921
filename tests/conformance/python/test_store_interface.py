# SPDX-License-Identifier: Apache-2.0
"""``mooncake.store``: every documented name is there, with its arguments, its defaults and its values."""

from __future__ import annotations

import inspect

import pytest
from mooncake import store as module
from mooncake.async_store import MooncakeDistributedStoreAsync
from mooncake.store import MooncakeDistributedStore, ReplicateConfig

# Method -> its parameters: "/" ends the positional-only ones, "*" begins the keyword-only ones.
PLAIN = {
    "setup": "local_hostname metadata_server global_segment_size local_buffer_size protocol rdma_devices "
    "master_server_addr engine=None enable_ssd_offload=False ssd_offload_path='' tenant_id='default' "
    "enable_client_http_server=False client_http_port=9300",
    "setup_dummy": "mem_pool_size local_buffer_size server_address",
    "init_all": "protocol device_name mount_segment_size /",
    "close": "/",
    "health_check": "",
    "get_hostname": "/",
    "mount_segment": "path size offset=0 protocol='tcp' location=''",
    "unmount_segment": "segment_ids grace_period_seconds=0",
    "allocate_and_mount_segment": "size protocol='tcp' location=''",
    "unmount_and_free_segment": "segment_ids grace_period_seconds=0",
    "unmount_local_disk_segment": "grace_period_seconds=0",
    "alloc_from_mem_pool": "size /",
    "get": "key /",
    "get_batch": "keys /",
    "get_buffer": "key /",
    "batch_get_buffer": "keys /",
    "get_offload_rpc_read_count": "",
    "remove": "key force=False",
    "remove_by_regex": "regex_pattern force=False",
    "remove_all": "force=False",
    "batch_remove": "keys force=False",
    "is_exist": "key /",
    "batch_is_exist": "keys",
    "get_size": "key /",
    "put": "key value config",
    "put_batch": "keys values config",
    "put_from": "key buffer_ptr size config",
    "put_from_with_metadata": "key buffer_ptr metadata_buffer_ptr size metadata_size config",
    "batch_put_from": "keys buffer_ptrs sizes config",
    "batch_put_from_multi_buffers": "keys all_buffer_ptrs all_sizes config",
    "get_into": "key buffer_ptr size",
    "batch_get_into": "keys buffer_ptrs sizes",
    "get_into_ranges": "buffer_ptrs all_keys all_dst_offsets all_src_offsets all_sizes",
    "batch_get_into_multi_buffers": "keys all_buffer_ptrs all_sizes prefer_alloc_in_same_node=False",
    "upsert": "key value config",
    "upsert_batch": "keys values config",
    "upsert_from": "key buffer_ptr size config",
    "batch_upsert_from": "keys buffer_ptrs sizes config",
    "register_buffer": "buffer_ptr size",
    "unregister_buffer": "buffer_ptr",
    "batch_get_session_start": "keys",
    "batch_get_into_multi_buffer_ranges": "keys all_buffer_ptrs all_sizes all_src_offsets",
    "batch_get_session_end": "keys",
    "batch_put_session_start": "keys sizes config",
    "batch_put_from_multi_buffer_ranges": "keys all_buffer_ptrs all_sizes all_dst_offsets",
    "batch_put_session_end": "keys",
    "batch_put_session_revoke": "keys",
    "get_replica_desc": "key",
    "batch_get_replica_desc": "keys",
    "batch_replica_clear": "keys segment_name=''",
    "create_copy_task": "key targets",
    "create_move_task": "key source target",
    "query_task": "task_id",
}

TENSORS = {
    "get_tensor_with_tp": "key tp_rank=0 tp_size=1 split_dim=0",
    "batch_get_tensor_with_tp": "base_keys tp_rank=0 tp_size=1",
    "get_tensor": "key",
    "put_tensor_with_tp": "key tensor tp_rank=0 tp_size=1 split_dim=0",
    "batch_put_tensor_with_tp": "base_keys tensors_list tp_rank=0 tp_size=1 split_dim=0",
    "put_tensor": "key tensor",
    "batch_get_tensor": "keys",
    "batch_put_tensor": "keys tensors_list",
    "save_tensor_to_safetensor": "key file_name=None",
    "pub_tensor": "key tensor config",
    "batch_pub_tensor": "keys tensors_list config",
    "pub_tensor_with_tp": "key tensor config tp_rank=0 tp_size=1 split_dim=0",
    "batch_pub_tensor_with_tp": "base_keys tensors_list config tp_rank=0 tp_size=1 split_dim=0",
    "get_tensor_into": "key buffer_ptr size",
    "batch_get_tensor_into": "keys buffer_ptrs sizes",
    "get_tensor_into_cuda": "key tensor",
    "batch_get_tensor_into_cuda": "keys tensors_list",
    "get_tensor_with_tp_into": "key buffer_ptr size tp_rank=0 tp_size=1 split_dim=0",
    "batch_get_tensor_with_tp_into": "base_keys buffer_ptrs sizes tp_rank=0 tp_size=1",
    "put_tensor_from": "key buffer_ptr size",
    "batch_put_tensor_from": "keys buffer_ptrs sizes",
    "put_tensor_with_tp_from": "key buffer_ptr size tp_rank=0 tp_size=1 split_dim=0",
    "batch_put_tensor_with_tp_from": "base_keys buffer_ptrs sizes tp_rank=0 tp_size=1 split_dim=0",
    "upsert_tensor": "key tensor",
    "upsert_tensor_from": "key buffer_ptr size",
    "batch_upsert_tensor_from": "keys buffer_ptrs sizes",
    "batch_upsert_tensor": "keys tensors_list",
    "upsert_pub_tensor": "key tensor config",
    "batch_upsert_pub_tensor": "keys tensors_list config",
    "get_tensor_with_parallelism": "key target=None",
    "batch_get_tensor_with_parallelism": "keys targets=None",
    "get_tensor_with_parallelism_into": "key buffer_ptr size target=None",
    "batch_get_tensor_with_parallelism_into": "keys buffer_ptrs sizes targets=None",
    "put_tensor_with_parallelism": "key tensor parallelism=None config writer_partition=None",
    "batch_put_tensor_with_parallelism": "keys tensors_list parallelisms=None config writer_partitions=None",
    "put_tensor_with_parallelism_from": "key buffer_ptr size parallelism=None config writer_partition=None",
    "batch_put_tensor_with_parallelism_from": "keys buffer_ptrs sizes parallelisms=None config writer_partitions=None",
    "upsert_tensor_with_parallelism": "key tensor parallelism=None config writer_partition=None",
    "upsert_tensor_with_parallelism_from": "key buffer_ptr size parallelism=None config writer_partition=None",
    "batch_upsert_tensor_with_parallelism_from": "keys buffer_ptrs sizes parallelisms=None config "
    "writer_partitions=None",
    "batch_upsert_tensor_with_parallelism": "keys tensors_list parallelisms=None config writer_partitions=None",
}

NAMES = [
    "ObjectDataType",
    "SoftPinAction",
    "ReplicaStatus",
    "TaskType",
    "TaskStatus",
    "ReplicateConfig",
    "ReplicaDescriptor",
    "MemoryDescriptor",
    "DiskDescriptor",
    "Descriptor",
    "QueryTaskResponse",
    "BufferHandle",
    "BufferPool",
    "BufferLease",
    "BufferLeaseView",
    "MooncakeHostMemAllocator",
    "ParallelAxis",
    "TensorParallelism",
    "ReadTarget",
    "MooncakeDistributedNoFRegister",
    "EngramStoreConfig",
    "EngramStore",
    "bind_to_numa_node",
    "get_alloc_func_addr",
    "get_free_func_addr",
    "_serialize_tensor",
    "_tensor_metadata_size",
    "_deserialize_tensor",
    "_get_pyclient_from_wrapper",
    "KVCACHE",
    "GENERAL",
    "COMPLETE",
]


def described(method):
    """The parameters of a method in the words of the tables; a configuration has no default of interest there."""
    out = []
    parameters = list(inspect.signature(method).parameters.values())
    for index, parameter in enumerate(parameters):
        required = parameter.default is parameter.empty or repr(parameter.default) == "<required>"
        known = required or isinstance(parameter.default, ReplicateConfig)
        if index and parameter.kind is parameter.KEYWORD_ONLY:
            break
        if parameter.name != "self":
            out.append(parameter.name if known else f"{parameter.name}={parameter.default!r}")
        last = index + 1 == len(parameters) or parameters[index + 1].kind is not parameter.POSITIONAL_ONLY
        if parameter.kind is parameter.POSITIONAL_ONLY and last:
            out.append("/")
    return " ".join(out)


@pytest.mark.parametrize("name", [*PLAIN, *TENSORS])
def test_a_method_takes_the_documented_arguments(name):
    assert described(getattr(MooncakeDistributedStore, name)) == {**PLAIN, **TENSORS}[name]


@pytest.mark.parametrize("name", [*PLAIN, *TENSORS])
def test_a_method_says_what_it_does_and_has_a_coroutine(name):
    assert inspect.getdoc(getattr(MooncakeDistributedStore, name))
    assert inspect.iscoroutinefunction(getattr(MooncakeDistributedStoreAsync, f"async_{name}"))


@pytest.mark.parametrize("name", ["put_parts", "upsert_parts"])
def test_parts_are_variable_and_their_config_is_keyword_only(name):
    kinds = [(p.name, p.kind) for p in inspect.signature(getattr(MooncakeDistributedStore, name)).parameters.values()]
    parameter = inspect.Parameter
    assert kinds[1:] == [
        ("key", parameter.POSITIONAL_OR_KEYWORD),
        ("parts", parameter.VAR_POSITIONAL),
        ("config", parameter.KEYWORD_ONLY),
    ]


def test_no_public_method_is_missing_from_these_tables():
    public = {name for name, _ in inspect.getmembers(MooncakeDistributedStore, inspect.isfunction) if name[0] != "_"}
    # file_name comes after a parameter with a default in the documents, which Python can't say.
    assert public == {*PLAIN, *TENSORS, "put_parts", "upsert_parts", "load_tensor_from_safetensor"}


@pytest.mark.parametrize("name", NAMES)
def test_the_module_has_the_name(name):
    assert getattr(module, name) is not None and name in module.__all__


def test_the_enumerations_have_the_documented_numbers():
    data = "UNKNOWN KVCACHE TENSOR WEIGHT SAMPLE ACTIVATION GRADIENT OPTIMIZER_STATE METADATA GENERAL".split()
    assert [(item.name, item.value) for item in module.ObjectDataType] == [(name, i) for i, name in enumerate(data)]
    assert [item.name for item in module.SoftPinAction] == ["PRESERVE", "ENABLE", "DISABLE"]
    assert [item.name for item in module.TaskType] == ["REPLICA_COPY", "REPLICA_MOVE"]
    assert [item.name for item in module.TaskStatus] == ["PENDING", "PROCESSING", "SUCCESS", "FAILED"]
    assert module.KVCACHE is module.ObjectDataType.KVCACHE


def test_a_configuration_begins_with_the_documented_values():
    config = ReplicateConfig()
    values = {name: getattr(config, name) for name in config.__slots__}
    assert values == {
        "replica_num": 1,
        "nof_replica_num": 0,
        "dfs_replica_num": 0,
        "soft_pin_action": module.SoftPinAction.PRESERVE,
        "soft_pin_ttl_ms": None,
        "with_hard_pin": False,
        "preferred_segments": [],
        "preferred_nof_segments": [],
        "preferred_segment": "",
        "prefer_alloc_in_same_node": False,
        "data_type": module.ObjectDataType.UNKNOWN,
        "group_ids": None,
    }
    assert "replica_num: 1" in str(config)


def test_configurations_share_nothing():
    one, other = ReplicateConfig(), ReplicateConfig()
    one.preferred_segments.append("10.0.0.1:1")
    assert other.preferred_segments == [] == ReplicateConfig().preferred_segments


@pytest.mark.parametrize(
    "name, value, error",
    [
        ("replica_num", -1, TypeError),
        ("replica_num", "2", TypeError),
        ("with_hard_pin", 1, TypeError),
        ("soft_pin_action", 1, TypeError),
        ("data_type", 1, TypeError),
        ("preferred_segments", "host:1", TypeError),
        ("preferred_segments", [1], TypeError),
        ("group_ids", "group", TypeError),
        ("with_soft_pins", True, AttributeError),
    ],
)
def test_a_configuration_refuses_what_it_does_not_know(name, value, error):
    config = ReplicateConfig()
    with pytest.raises(error, match=name):
        setattr(config, name, value)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.get(key="k"),
        lambda s: s.get_batch(keys=["k"]),
        lambda s: s.get_buffer(key="k"),
        lambda s: s.batch_get_buffer(keys=["k"]),
        lambda s: s.is_exist(key="k"),
        lambda s: s.get_size(key="k"),
        lambda s: s.alloc_from_mem_pool(size=1),
        lambda s: s.init_all(protocol="tcp", device_name="", mount_segment_size=1),
        lambda s: module.MooncakeHostMemAllocator().alloc(size=1),
        lambda s: s.put("k", b"v", ReplicateConfig(), 1),
        lambda s: s.put_parts("k", b"v", ReplicateConfig(), configuration=1),
    ],
)
def test_positional_only_arguments_have_no_keyword(call):
    with pytest.raises(TypeError):
        call(MooncakeDistributedStore())


def test_the_text_of_setup_lists_its_parameters():
    for name in PLAIN["setup"].split():
        assert name.partition("=")[0] in MooncakeDistributedStore.setup.__doc__
