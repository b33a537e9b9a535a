//go:build linux && (amd64 || arm64) && cgo && !novulkan

// The calls that the Go binding cannot make safely or does not have: it releases the copies of struct slices while the
// driver reads them, and knows nothing newer than Vulkan 1.0.

#include "shim.h"
#include "abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void (*Fn)(void);

static Fn (*get_instance_proc)(void *, const char *);

static struct {
	void (*properties2)(void *, Properties2 *);
	void (*features2)(void *, Features2 *);
	void (*memory2)(void *, MemoryProperties2 *);
	void (*families)(void *, uint32_t *, QueueFamilyProperties *);
	VkResult (*extensions)(void *, const char *, uint32_t *, ExtensionProperties *);
	VkResult (*create_device)(void *, const DeviceCreateInfo *, const void *, void **);
	VkResult (*matrices)(void *, uint32_t *, MatrixProperties *);
	Fn (*get_device_proc)(void *, const char *);
} in;

struct shim_device {
	void *device;
	uint32_t robustness; // pipelines say how their accesses are checked
	VkResult (*create_set_layout)(void *, const SetLayoutInfo *, const void *, Handle *);
	VkResult (*create_pipeline_layout)(void *, const PipelineLayoutInfo *, const void *, Handle *);
	VkResult (*create_module)(void *, const ShaderModuleInfo *, const void *, Handle *);
	void (*destroy_module)(void *, Handle, const void *);
	VkResult (*create_pipelines)(void *, Handle, uint32_t, const ComputePipelineInfo *, const void *, Handle *);
	VkResult (*create_pool)(void *, const PoolInfo *, const void *, Handle *);
	VkResult (*allocate_sets)(void *, const SetAllocateInfo *, Handle *);
	void (*update_sets)(void *, uint32_t, const WriteSet *, uint32_t, const void *);
	VkResult (*begin)(void *, const BeginInfo *);
	VkResult (*end)(void *);
	void (*bind_pipeline)(void *, int32_t, Handle);
	void (*bind_sets)(void *, int32_t, Handle, uint32_t, uint32_t, const Handle *, uint32_t, const uint32_t *);
	void (*push)(void *, Handle, VkFlags, uint32_t, uint32_t, const void *);
	void (*dispatch)(void *, uint32_t, uint32_t, uint32_t);
	void (*barrier)(void *, VkFlags, VkFlags, VkFlags, uint32_t, const MemoryBarrier *, uint32_t, const void *, uint32_t, const void *);
	void (*copy)(void *, Handle, Handle, uint32_t, const BufferCopy *);
	void (*reset_queries)(void *, Handle, uint32_t, uint32_t);
	void (*timestamp)(void *, int32_t, Handle, uint32_t);
	VkResult (*submit)(void *, uint32_t, const SubmitInfo *, Handle);
	VkResult (*fence_status)(void *, Handle);
	VkResult (*wait)(void *, uint32_t, const Handle *, VkBool32, uint64_t);
	VkResult (*reset)(void *, uint32_t, const Handle *);
};

enum {
	COMPUTE_BIT = 0x20, DEVICE_LOCAL_BIT = 1, STORAGE_BUFFER = 7, BIND_COMPUTE = 1,
	STAGE_COMPUTE = 0x800, STAGE_TRANSFER = 0x1000, STAGE_HOST = 0x4000, STAGE_BOTTOM = 0x2000,
	ACCESS_SHADER = 0x60, ACCESS_TRANSFER = 0x1800, ACCESS_HOST_READ = 0x2000,
	ROBUSTNESS_DISABLED = 1, INITIALIZATION_FAILED = -3, OUT_OF_HOST_MEMORY = -1,
};

void *shim_load(const char **reason) {
	static char first[256]; // what is wrong with the library under the name that a system gives it
	void *lib = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(first, sizeof first, "%s", dlerror());
		lib = dlopen("libvulkan.so", RTLD_NOW | RTLD_LOCAL);
	}
	if (!lib) {
		*reason = first;
		return NULL;
	}
	*(void **)&get_instance_proc = dlsym(lib, "vkGetInstanceProcAddr");
	if (!get_instance_proc)
		*reason = "libvulkan has no vkGetInstanceProcAddr";
	return *(void **)&get_instance_proc;
}

#define INSTANCE(field, name) *(Fn *)&in.field = get_instance_proc(instance, name)

void shim_instance(void *instance) {
	INSTANCE(properties2, "vkGetPhysicalDeviceProperties2");
	INSTANCE(features2, "vkGetPhysicalDeviceFeatures2");
	INSTANCE(memory2, "vkGetPhysicalDeviceMemoryProperties2");
	INSTANCE(families, "vkGetPhysicalDeviceQueueFamilyProperties");
	INSTANCE(extensions, "vkEnumerateDeviceExtensionProperties");
	INSTANCE(create_device, "vkCreateDevice");
	INSTANCE(matrices, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
	INSTANCE(get_device_proc, "vkGetDeviceProcAddr");
}

uint32_t shim_api_version(void) {
	VkResult (*version)(uint32_t *);
	uint32_t v = 1u << 22;
	*(Fn *)&version = get_instance_proc(NULL, "vkEnumerateInstanceVersion");
	if (version)
		version(&v);
	return v;
}

// A list of extension names found on the device.
typedef struct { ExtensionProperties *list; uint32_t count; } Extensions;

static Extensions extensions_of(void *physical) {
	Extensions e = {0};
	if (in.extensions(physical, NULL, &e.count, NULL) < 0)
		return e;
	e.list = calloc(e.count + 1, sizeof *e.list);
	if (!e.list || in.extensions(physical, NULL, &e.count, e.list) < 0)
		e.count = 0;
	return e;
}

static int has(const Extensions *e, const char *name) {
	for (uint32_t i = 0; i < e->count; i++)
		if (!strcmp(e->list[i].name, name))
			return 1;
	return 0;
}

static uint32_t version(uint32_t major, uint32_t minor) { return major << 22 | minor << 12; }

// Chains struct s of the given type at the end of a pNext list.
#define CHAIN(s, type) ((s).sType = (type), *tail = &(s), tail = &(s).pNext)

enum { SCOPE_SUBGROUP = 3, SINT8 = 3, SINT32 = 5 };

static void list_matrices(void *physical, shim_info *out) {
	uint32_t n = 0;
	if (!in.matrices || in.matrices(physical, &n, NULL) < 0 || n == 0)
		return;
	MatrixProperties *p = calloc(n, sizeof *p);
	if (!p)
		return;
	for (uint32_t i = 0; i < n; i++)
		p[i].sType = ST_COOPERATIVE_MATRIX_PROPERTIES;
	if (in.matrices(physical, &n, p) >= 0) {
		for (uint32_t i = 0; i < n && out->matrices < 32; i++) {
			if (p[i].a != SINT8 || p[i].b != SINT8 || p[i].c != SINT32 || p[i].result != SINT32 || p[i].scope != SCOPE_SUBGROUP || p[i].saturating)
				continue;
			uint32_t at = out->matrices++;
			out->matrix[at].m = p[i].m;
			out->matrix[at].n = p[i].n;
			out->matrix[at].k = p[i].k;
		}
	}
	free(p);
}

int shim_query(void *physical, uint32_t api, shim_info *out) {
	if (!in.properties2 || !in.features2)
		return INITIALIZATION_FAILED;
	Extensions e = extensions_of(physical);
	int size = api >= version(1, 3) || has(&e, "VK_EXT_subgroup_size_control");
	int dot = api >= version(1, 3) || has(&e, "VK_KHR_shader_integer_dot_product");
	int controls = api >= version(1, 2) || has(&e, "VK_KHR_shader_float_controls");
	int driver = api >= version(1, 2) || has(&e, "VK_KHR_driver_properties");
	int matrix = has(&e, "VK_KHR_cooperative_matrix");
	int model = api >= version(1, 2) || has(&e, "VK_KHR_vulkan_memory_model");
	int int8 = api >= version(1, 2) || has(&e, "VK_KHR_shader_float16_int8");
	int robustness = has(&e, "VK_EXT_pipeline_robustness");
	free(e.list);

	SubgroupProperties sub = {0};
	IDProperties id = {0};
	DriverProperties drv = {0};
	FloatControlsProperties fc = {0};
	SubgroupSizeProperties szp = {0};
	Maintenance3Properties m3 = {0};
	Properties2 p = {ST_PROPERTIES_2, NULL, {0}};
	void **tail = &p.pNext;
	CHAIN(sub, ST_SUBGROUP_PROPERTIES);
	CHAIN(id, ST_ID_PROPERTIES);
	CHAIN(m3, ST_MAINTENANCE3_PROPERTIES);
	if (driver)
		CHAIN(drv, ST_DRIVER_PROPERTIES);
	if (controls)
		CHAIN(fc, ST_FLOAT_CONTROLS_PROPERTIES);
	if (size)
		CHAIN(szp, ST_SUBGROUP_SIZE_PROPERTIES);
	in.properties2(physical, &p);

	SubgroupSizeFeatures szf = {0};
	DotFeatures df = {0};
	MatrixFeatures mf = {0};
	MemoryModelFeatures mm = {0};
	Int8Features i8 = {0};
	RobustnessFeatures rf = {0};
	Features2 f = {ST_FEATURES_2, NULL, {0}};
	tail = &f.pNext;
	if (size)
		CHAIN(szf, ST_SUBGROUP_SIZE_FEATURES);
	if (dot)
		CHAIN(df, ST_DOT_FEATURES);
	if (matrix)
		CHAIN(mf, ST_COOPERATIVE_MATRIX_FEATURES);
	if (model)
		CHAIN(mm, ST_MEMORY_MODEL_FEATURES);
	if (int8)
		CHAIN(i8, ST_INT8_FEATURES);
	if (robustness)
		CHAIN(rf, ST_PIPELINE_ROBUSTNESS_FEATURES);
	in.features2(physical, &f);

	memset(out, 0, sizeof *out);
	memcpy(out->driver, drv.name, sizeof out->driver - 1);
	memcpy(out->device_uuid, id.device, 16);
	memcpy(out->driver_uuid, id.driver, 16);
	out->subgroup = sub.size;
	out->subgroup_ops = sub.stages & COMPUTE_BIT ? sub.operations : 0;
	out->min_subgroup = out->max_subgroup = sub.size;
	if (szf.control && szp.stages & COMPUTE_BIT) {
		out->subgroup_control = 1;
		out->min_subgroup = szp.min;
		out->max_subgroup = szp.max;
		out->max_subgroups = szp.maxWorkgroup;
	}
	out->dot = df.dot;
	out->robustness = rf.pipelines;
	out->rte32 = fc.rte32;
	out->preserve32 = fc.preserve32;
	out->max_allocation = m3.allocation;
	if (mf.matrix && mm.model && i8.int8 && f.features[FEATURE_INT64])
		list_matrices(physical, out);
	return 0;
}

uint32_t shim_families(void *physical, shim_family *out, uint32_t max) {
	QueueFamilyProperties p[32];
	uint32_t n = max < 32 ? max : 32;
	in.families(physical, &n, p);
	for (uint32_t i = 0; i < n; i++)
		out[i] = (shim_family){p[i].flags, p[i].timestampBits};
	return n;
}

int shim_free_memory(void *physical, uint64_t *bytes) {
	Extensions e = extensions_of(physical);
	int known = in.memory2 && has(&e, "VK_EXT_memory_budget");
	free(e.list);
	if (!known)
		return 0;
	MemoryBudgetProperties b = {ST_MEMORY_BUDGET_PROPERTIES, NULL, {0}, {0}};
	MemoryProperties2 m = {ST_MEMORY_PROPERTIES_2, &b, 0, {{0}}, 0, {{0}}};
	in.memory2(physical, &m);
	uint64_t largest = 0;
	for (uint32_t i = 0; i < m.heaps; i++) {
		if (!(m.heap[i].flags & DEVICE_LOCAL_BIT) || m.heap[i].size <= largest)
			continue;
		largest = m.heap[i].size;
		*bytes = b.budget[i] > b.usage[i] ? b.budget[i] - b.usage[i] : 0;
	}
	return largest > 0;
}

static void destroy_device(void *device) {
	void (*destroy)(void *, const void *);
	*(Fn *)&destroy = in.get_device_proc(device, "vkDestroyDevice");
	if (destroy)
		destroy(device, NULL);
}

#define DEVICE(field, name) \
	do { \
		*(Fn *)&d->field = in.get_device_proc(*device, name); \
		if (!d->field) \
			missing = 1; \
	} while (0)

int shim_open(void *physical, uint32_t api, const shim_info *info, uint32_t family, void **device, shim_device **out) {
	const char *names[8];
	uint32_t count = 0;
	Extensions e = extensions_of(physical);
	const char *wanted[] = {"VK_EXT_subgroup_size_control", "VK_KHR_shader_integer_dot_product", "VK_KHR_shader_float_controls",
		"VK_KHR_vulkan_memory_model", "VK_KHR_shader_float16_int8"};
	uint32_t core[] = {version(1, 3), version(1, 3), version(1, 2), version(1, 2), version(1, 2)};
	for (int i = 0; i < 5; i++)
		if (api < core[i] && has(&e, wanted[i]))
			names[count++] = wanted[i];
	if (info->matrices)
		names[count++] = "VK_KHR_cooperative_matrix";
	if (info->robustness)
		names[count++] = "VK_EXT_pipeline_robustness";
	free(e.list);

	SubgroupSizeFeatures szf = {0};
	DotFeatures df = {0};
	MatrixFeatures mf = {0};
	MemoryModelFeatures mm = {0};
	Int8Features i8 = {0};
	RobustnessFeatures rf = {0};
	VkBool32 core_features[55] = {0};
	void *chain = NULL, **tail = &chain;
	szf.control = df.dot = mf.matrix = mm.model = i8.int8 = rf.pipelines = 1;
	if (info->subgroup_control)
		CHAIN(szf, ST_SUBGROUP_SIZE_FEATURES);
	if (info->dot)
		CHAIN(df, ST_DOT_FEATURES);
	if (info->robustness)
		CHAIN(rf, ST_PIPELINE_ROBUSTNESS_FEATURES);
	if (info->matrices) {
		CHAIN(mf, ST_COOPERATIVE_MATRIX_FEATURES);
		CHAIN(mm, ST_MEMORY_MODEL_FEATURES);
		CHAIN(i8, ST_INT8_FEATURES);
		core_features[FEATURE_INT64] = 1;
	}
	float priority = 1;
	QueueCreateInfo q = {ST_DEVICE_QUEUE_CREATE_INFO, NULL, 0, family, 1, &priority};
	DeviceCreateInfo c = {ST_DEVICE_CREATE_INFO, chain, 0, 1, &q, 0, NULL, count, names, core_features};
	VkResult r = in.create_device(physical, &c, NULL, device);
	if (r < 0)
		return r;

	shim_device *d = calloc(1, sizeof *d);
	if (!d) {
		destroy_device(*device);
		return OUT_OF_HOST_MEMORY;
	}
	int missing = 0;
	d->device = *device;
	d->robustness = info->robustness;
	DEVICE(create_set_layout, "vkCreateDescriptorSetLayout");
	DEVICE(create_pipeline_layout, "vkCreatePipelineLayout");
	DEVICE(create_module, "vkCreateShaderModule");
	DEVICE(destroy_module, "vkDestroyShaderModule");
	DEVICE(create_pipelines, "vkCreateComputePipelines");
	DEVICE(create_pool, "vkCreateDescriptorPool");
	DEVICE(allocate_sets, "vkAllocateDescriptorSets");
	DEVICE(update_sets, "vkUpdateDescriptorSets");
	DEVICE(begin, "vkBeginCommandBuffer");
	DEVICE(end, "vkEndCommandBuffer");
	DEVICE(bind_pipeline, "vkCmdBindPipeline");
	DEVICE(bind_sets, "vkCmdBindDescriptorSets");
	DEVICE(push, "vkCmdPushConstants");
	DEVICE(dispatch, "vkCmdDispatch");
	DEVICE(barrier, "vkCmdPipelineBarrier");
	DEVICE(copy, "vkCmdCopyBuffer");
	DEVICE(reset_queries, "vkCmdResetQueryPool");
	DEVICE(timestamp, "vkCmdWriteTimestamp");
	DEVICE(submit, "vkQueueSubmit");
	DEVICE(fence_status, "vkGetFenceStatus");
	DEVICE(wait, "vkWaitForFences");
	DEVICE(reset, "vkResetFences");
	if (missing) {
		free(d);
		destroy_device(*device);
		return INITIALIZATION_FAILED;
	}
	*out = d;
	return 0;
}

void shim_free(shim_device *d) { free(d); }

int shim_set_layout(shim_device *d, uint32_t bindings, uint64_t *layout) {
	LayoutBinding b[32];
	if (bindings > 32)
		return INITIALIZATION_FAILED;
	for (uint32_t i = 0; i < bindings; i++)
		b[i] = (LayoutBinding){i, STORAGE_BUFFER, 1, COMPUTE_BIT, NULL};
	SetLayoutInfo c = {ST_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, NULL, 0, bindings, b};
	return d->create_set_layout(d->device, &c, NULL, layout);
}

int shim_pipeline_layout(shim_device *d, uint64_t set_layout, uint32_t push_bytes, uint64_t *layout) {
	PushRange range = {COMPUTE_BIT, 0, push_bytes};
	PipelineLayoutInfo c = {ST_PIPELINE_LAYOUT_CREATE_INFO, NULL, 0, 1, &set_layout, push_bytes ? 1 : 0, &range};
	return d->create_pipeline_layout(d->device, &c, NULL, layout);
}

int shim_pipeline(shim_device *d, uint64_t cache, const uint32_t *code, size_t bytes, uint64_t layout,
	const uint32_t *constants, uint32_t count, uint32_t subgroup, uint64_t *pipeline) {
	MapEntry map[32];
	if (count > 32)
		return INITIALIZATION_FAILED;
	for (uint32_t i = 0; i < count; i++)
		map[i] = (MapEntry){i, 4 * i, 4};
	SpecializationInfo spec = {count, map, 4 * (size_t)count, constants};
	RequiredSubgroupSize size = {ST_REQUIRED_SUBGROUP_SIZE, NULL, subgroup};
	// Some drivers check each access against the size of its buffer unless they are told not to, although nothing asks for it.
	RobustnessInfo unchecked = {ST_PIPELINE_ROBUSTNESS_INFO, NULL, ROBUSTNESS_DISABLED, ROBUSTNESS_DISABLED, ROBUSTNESS_DISABLED,
		ROBUSTNESS_DISABLED};
	ShaderModuleInfo mc = {ST_SHADER_MODULE_CREATE_INFO, NULL, 0, bytes, code};
	ComputePipelineInfo c = {ST_COMPUTE_PIPELINE_CREATE_INFO, d->robustness ? &unchecked : NULL, 0,
		{ST_SHADER_STAGE_CREATE_INFO, subgroup ? &size : NULL, 0, COMPUTE_BIT, 0, "main", count ? &spec : NULL}, layout, 0, -1};
	VkResult r = d->create_module(d->device, &mc, NULL, &c.stage.module);
	if (r < 0)
		return r;
	r = d->create_pipelines(d->device, cache, 1, &c, NULL, pipeline);
	d->destroy_module(d->device, c.stage.module, NULL);
	return r;
}

// Makes the descriptor sets of all dispatches, one each, in order.
static VkResult make_sets(shim_device *d, const shim_command *commands, uint32_t count, const shim_binding *bindings,
	const uint64_t *set_layouts, uint32_t sets, uint32_t binding_count, Handle *pool, Handle *made) {
	PoolSize size = {STORAGE_BUFFER, binding_count ? binding_count : 1};
	PoolInfo pc = {ST_DESCRIPTOR_POOL_CREATE_INFO, NULL, 0, sets, 1, &size};
	VkResult r = d->create_pool(d->device, &pc, NULL, pool);
	if (r < 0)
		return r;
	SetAllocateInfo ac = {ST_DESCRIPTOR_SET_ALLOCATE_INFO, NULL, *pool, sets, set_layouts};
	if ((r = d->allocate_sets(d->device, &ac, made)) < 0)
		return r;
	for (uint32_t i = 0; i < count; i++) {
		const shim_command *c = &commands[i];
		if (c->kind != SHIM_DISPATCH)
			continue;
		WriteSet writes[32];
		BufferInfo infos[32];
		for (uint32_t b = 0; b < c->bindings; b++) {
			const shim_binding *s = &bindings[c->first_binding + b];
			infos[b] = (BufferInfo){s->buffer, s->offset, s->size};
			writes[b] = (WriteSet){ST_WRITE_DESCRIPTOR_SET, NULL, made[c->set], b, 0, 1, STORAGE_BUFFER, NULL, &infos[b], NULL};
		}
		d->update_sets(d->device, c->bindings, writes, 0, NULL);
	}
	return 0;
}

static void record(shim_device *d, void *cb, const shim_command *c, const Handle *sets, const uint8_t *push, uint64_t *bound,
	uint64_t query_pool, uint32_t *query) {
	switch (c->kind) {
	case SHIM_DISPATCH:
		if (*bound != c->pipeline)
			d->bind_pipeline(cb, BIND_COMPUTE, c->pipeline);
		*bound = c->pipeline;
		d->bind_sets(cb, BIND_COMPUTE, c->layout, 0, 1, &sets[c->set], 0, NULL);
		if (c->push_bytes)
			d->push(cb, c->layout, COMPUTE_BIT, 0, c->push_bytes, push + c->push_offset);
		d->dispatch(cb, c->groups[0], c->groups[1], c->groups[2]);
		break;
	case SHIM_BARRIER: {
		MemoryBarrier b = {ST_MEMORY_BARRIER, NULL, ACCESS_SHADER, ACCESS_SHADER};
		d->barrier(cb, STAGE_COMPUTE, STAGE_COMPUTE, 0, 1, &b, 0, NULL, 0, NULL);
		break;
	}
	case SHIM_COPY_BARRIER: {
		VkFlags both = ACCESS_SHADER | ACCESS_TRANSFER;
		MemoryBarrier b = {ST_MEMORY_BARRIER, NULL, both, both | ACCESS_HOST_READ};
		d->barrier(cb, STAGE_COMPUTE | STAGE_TRANSFER, STAGE_COMPUTE | STAGE_TRANSFER | STAGE_HOST, 0, 1, &b, 0, NULL, 0, NULL);
		break;
	}
	case SHIM_COPY: {
		BufferCopy b = {c->src_offset, c->dst_offset, c->size};
		d->copy(cb, c->src, c->dst, 1, &b);
		break;
	}
	case SHIM_TIMESTAMP:
		d->timestamp(cb, STAGE_BOTTOM, query_pool, (*query)++);
		break;
	}
}

int shim_record(shim_device *d, void **command_buffers, const shim_command *commands, uint32_t count,
	const shim_binding *bindings, const uint64_t *set_layouts, uint32_t sets, uint32_t binding_count,
	const uint8_t *push, uint64_t query_pool, uint64_t *descriptor_pool) {
	Handle *made = calloc(sets + 1, sizeof *made);
	if (!made)
		return OUT_OF_HOST_MEMORY;
	VkResult r = 0;
	if (sets)
		r = make_sets(d, commands, count, bindings, set_layouts, sets, binding_count, descriptor_pool, made);
	BeginInfo begin = {ST_COMMAND_BUFFER_BEGIN_INFO, NULL, 0, NULL};
	uint32_t queries = 0, query = 0, at = 0;
	for (uint32_t i = 0; i < count; i++)
		queries += commands[i].kind == SHIM_TIMESTAMP;
	for (void **cb = command_buffers; r >= 0; cb++) {
		if ((r = d->begin(*cb, &begin)) < 0)
			break;
		if (at == 0 && queries)
			d->reset_queries(*cb, query_pool, 0, queries);
		uint64_t bound = 0;
		for (; at < count && commands[at].kind != SHIM_CUT; at++)
			record(d, *cb, &commands[at], made, push, &bound, query_pool, &query);
		r = d->end(*cb);
		if (at++ == count)
			break;
	}
	free(made);
	return r;
}

int shim_submit(shim_device *d, void *queue, void **command_buffers, uint32_t count, uint64_t fence) {
	SubmitInfo s = {ST_SUBMIT_INFO, NULL, 0, NULL, NULL, count, command_buffers, 0, NULL};
	return d->submit(queue, 1, &s, fence);
}

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int shim_wait(shim_device *d, uint64_t fence, uint64_t spin_nanos, uint64_t timeout_nanos) {
	uint64_t end = now() + spin_nanos;
	VkResult r;
	while ((r = d->fence_status(d->device, fence)) == 1 && now() < end) {
	}
	if (r == 1)
		r = d->wait(d->device, 1, &fence, 1, timeout_nanos);
	if (r != 0)
		return r;
	return d->reset(d->device, 1, &fence);
}
