#ifndef DCHAIN_VK_SHIM_H
#define DCHAIN_VK_SHIM_H

#include <stddef.h>
#include <stdint.h>

// What the driver says about a device beyond Vulkan 1.0.
typedef struct {
	char driver[256];
	uint8_t device_uuid[16], driver_uuid[16];
	uint32_t subgroup, min_subgroup, max_subgroup, max_subgroups, subgroup_ops;
	uint32_t subgroup_control, dot, rte32, preserve32, robustness;
	uint64_t max_allocation;
	uint32_t matrices; // filled of matrix
	struct { uint32_t m, n, k; } matrix[32];
} shim_info;

typedef struct shim_device shim_device;

// A recorded command; see shim_record.
typedef struct {
	uint32_t kind, groups[3];
	uint64_t pipeline, layout;
	uint32_t set, first_binding, bindings, push_offset, push_bytes;
	uint64_t src, dst, src_offset, dst_offset, size;
} shim_command;

enum { SHIM_DISPATCH, SHIM_BARRIER, SHIM_COPY_BARRIER, SHIM_COPY, SHIM_TIMESTAMP, SHIM_CUT };

typedef struct { uint64_t buffer, offset, size; } shim_binding;

// Opens the library; NULL if there is none, with the reason in *reason.
void *shim_load(const char **reason);
void shim_instance(void *instance);
uint32_t shim_api_version(void);
int shim_query(void *physical, uint32_t api, shim_info *out);
// The queue families of a device, at most max of them; returns how many.
typedef struct { uint32_t flags, timestamp_bits; } shim_family;
uint32_t shim_families(void *physical, shim_family *out, uint32_t max);
// What is left of the largest device-local heap; 0 if the driver does not tell.
int shim_free_memory(void *physical, uint64_t *bytes);
int shim_open(void *physical, uint32_t api, const shim_info *info, uint32_t family, void **device, shim_device **out);
void shim_free(shim_device *d);

int shim_set_layout(shim_device *d, uint32_t bindings, uint64_t *layout);
int shim_pipeline_layout(shim_device *d, uint64_t set_layout, uint32_t push_bytes, uint64_t *layout);
int shim_pipeline(shim_device *d, uint64_t cache, const uint32_t *code, size_t bytes, uint64_t layout,
	const uint32_t *constants, uint32_t count, uint32_t subgroup, uint64_t *pipeline);

// Allocates the descriptor sets of the dispatches from a new pool, writes them and records everything, after each SHIM_CUT into
// the next command buffer.
int shim_record(shim_device *d, void **command_buffers, const shim_command *commands, uint32_t count,
	const shim_binding *bindings, const uint64_t *set_layouts, uint32_t sets, uint32_t binding_count,
	const uint8_t *push, uint64_t query_pool, uint64_t *descriptor_pool);
int shim_submit(shim_device *d, void *queue, void **command_buffers, uint32_t count, uint64_t fence);
// Looks at the fence for spin_nanos, then sleeps on it for at most timeout_nanos, and resets it; VK_TIMEOUT if that was not enough.
int shim_wait(shim_device *d, uint64_t fence, uint64_t spin_nanos, uint64_t timeout_nanos);

#endif
