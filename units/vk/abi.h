// The few declarations of the Vulkan interface that the shim uses, by the sizes and orders of the specification, so that
// the build needs no installed headers. 64-bit only.
#ifndef DCHAIN_VK_ABI_H
#define DCHAIN_VK_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t VkResult;
typedef uint32_t VkFlags;
typedef uint32_t VkBool32;
typedef uint64_t VkDeviceSize;
typedef uint64_t Handle; // dispatchable or not: 64 bits either way

enum {
	ST_SUBMIT_INFO = 4,
	ST_DEVICE_CREATE_INFO = 3,
	ST_DEVICE_QUEUE_CREATE_INFO = 2,
	ST_SHADER_MODULE_CREATE_INFO = 16,
	ST_SHADER_STAGE_CREATE_INFO = 18,
	ST_COMPUTE_PIPELINE_CREATE_INFO = 29,
	ST_DESCRIPTOR_SET_LAYOUT_CREATE_INFO = 32,
	ST_DESCRIPTOR_POOL_CREATE_INFO = 33,
	ST_DESCRIPTOR_SET_ALLOCATE_INFO = 34,
	ST_WRITE_DESCRIPTOR_SET = 35,
	ST_COMMAND_BUFFER_BEGIN_INFO = 42,
	ST_MEMORY_BARRIER = 46,
	ST_PIPELINE_LAYOUT_CREATE_INFO = 30,
	ST_PROPERTIES_2 = 1000059001,
	ST_FEATURES_2 = 1000059000,
	ST_SUBGROUP_PROPERTIES = 1000094000,
	ST_ID_PROPERTIES = 1000071004,
	ST_DRIVER_PROPERTIES = 1000196000,
	ST_FLOAT_CONTROLS_PROPERTIES = 1000197000,
	ST_SUBGROUP_SIZE_PROPERTIES = 1000225000,
	ST_SUBGROUP_SIZE_FEATURES = 1000225002,
	ST_REQUIRED_SUBGROUP_SIZE = 1000225001,
	ST_DOT_FEATURES = 1000280000,
	ST_MAINTENANCE3_PROPERTIES = 1000168000,
	ST_MEMORY_PROPERTIES_2 = 1000059006,
	ST_MEMORY_BUDGET_PROPERTIES = 1000237000,
	ST_COOPERATIVE_MATRIX_FEATURES = 1000506000,
	ST_COOPERATIVE_MATRIX_PROPERTIES = 1000506001,
	ST_MEMORY_MODEL_FEATURES = 1000211000,
	ST_INT8_FEATURES = 1000082000,
	ST_PIPELINE_ROBUSTNESS_INFO = 1000068000,
	ST_PIPELINE_ROBUSTNESS_FEATURES = 1000068001,
};

typedef struct { int32_t sType; void *pNext; } Head;

typedef struct { int32_t sType; void *pNext; unsigned char properties[824]; } Properties2;
enum { FEATURE_INT64 = 40 }; // shaderInt64 of VkPhysicalDeviceFeatures
typedef struct { int32_t sType; void *pNext; VkBool32 features[55]; } Features2;
typedef struct { int32_t sType; void *pNext; uint32_t size; VkFlags stages, operations; VkBool32 quad; } SubgroupProperties;
typedef struct { int32_t sType; void *pNext; uint8_t device[16], driver[16], luid[8]; uint32_t mask; VkBool32 luidValid; } IDProperties;
typedef struct { int32_t sType; void *pNext; int32_t id; char name[256], info[256]; uint8_t conformance[4]; } DriverProperties;
typedef struct {
	int32_t sType; void *pNext;
	int32_t denormIndependence, roundingIndependence;
	VkBool32 preserve16, preserve32, preserve64, denormPreserve16, denormPreserve32, denormPreserve64;
	VkBool32 denormFlush16, denormFlush32, denormFlush64, rte16, rte32, rte64, rtz16, rtz32, rtz64;
} FloatControlsProperties;
typedef struct { int32_t sType; void *pNext; uint32_t min, max, maxWorkgroup; VkFlags stages; } SubgroupSizeProperties;
typedef struct { int32_t sType; void *pNext; VkBool32 control, full; } SubgroupSizeFeatures;
typedef struct { int32_t sType; void *pNext; uint32_t size; } RequiredSubgroupSize;
typedef struct { int32_t sType; void *pNext; VkBool32 dot; } DotFeatures;
typedef struct { int32_t sType; void *pNext; uint32_t perSet; VkDeviceSize allocation; } Maintenance3Properties;
typedef struct { int32_t sType; void *pNext; VkBool32 matrix, robust; } MatrixFeatures;
typedef struct { int32_t sType; void *pNext; VkBool32 model, deviceScope, chains; } MemoryModelFeatures;
typedef struct { int32_t sType; void *pNext; VkBool32 float16, int8; } Int8Features;
typedef struct { int32_t sType; void *pNext; VkBool32 pipelines; } RobustnessFeatures;
typedef struct { int32_t sType; const void *pNext; int32_t storage, uniform, vertex, images; } RobustnessInfo;
typedef struct {
	int32_t sType; void *pNext;
	uint32_t m, n, k;
	int32_t a, b, c, result;
	VkBool32 saturating;
	int32_t scope;
} MatrixProperties;

typedef struct { int32_t sType; const void *pNext; VkFlags flags; uint32_t family, count; const float *priorities; } QueueCreateInfo;
typedef struct {
	int32_t sType; const void *pNext; VkFlags flags;
	uint32_t queues; const QueueCreateInfo *queueInfos;
	uint32_t layers; const char *const *layerNames;
	uint32_t extensions; const char *const *extensionNames;
	const void *features;
} DeviceCreateInfo;
typedef struct { char name[256]; uint32_t version; } ExtensionProperties;

typedef struct { uint32_t id, offset; size_t size; } MapEntry;
typedef struct { uint32_t entries; const MapEntry *map; size_t size; const void *data; } SpecializationInfo;
typedef struct { int32_t sType; const void *pNext; VkFlags flags; int32_t stage; Handle module; const char *name; const SpecializationInfo *spec; } StageInfo;
typedef struct { int32_t sType; const void *pNext; VkFlags flags; StageInfo stage; Handle layout, base; int32_t index; } ComputePipelineInfo;
typedef struct { int32_t sType; const void *pNext; VkFlags flags; size_t size; const uint32_t *code; } ShaderModuleInfo;

typedef struct { uint32_t binding; int32_t type; uint32_t count; VkFlags stages; const void *samplers; } LayoutBinding;
typedef struct { int32_t sType; const void *pNext; VkFlags flags; uint32_t count; const LayoutBinding *bindings; } SetLayoutInfo;
typedef struct { VkFlags stages; uint32_t offset, size; } PushRange;
typedef struct { int32_t sType; const void *pNext; VkFlags flags; uint32_t sets; const Handle *layouts; uint32_t ranges; const PushRange *push; } PipelineLayoutInfo;
typedef struct { int32_t type; uint32_t count; } PoolSize;
typedef struct { int32_t sType; const void *pNext; VkFlags flags; uint32_t maxSets, sizes; const PoolSize *pool; } PoolInfo;
typedef struct { int32_t sType; const void *pNext; Handle pool; uint32_t count; const Handle *layouts; } SetAllocateInfo;
typedef struct { Handle buffer; VkDeviceSize offset, range; } BufferInfo;
typedef struct {
	int32_t sType; const void *pNext; Handle set; uint32_t binding, element, count; int32_t type;
	const void *images; const BufferInfo *buffers; const void *views;
} WriteSet;

typedef struct {
	int32_t sType; void *pNext;
	uint32_t types; struct { VkFlags flags; uint32_t heap; } type[32];
	uint32_t heaps; struct { VkDeviceSize size; VkFlags flags; } heap[16];
} MemoryProperties2;
typedef struct { VkFlags flags; uint32_t count, timestampBits, granularity[3]; } QueueFamilyProperties;
typedef struct { int32_t sType; void *pNext; VkDeviceSize budget[16], usage[16]; } MemoryBudgetProperties;

typedef struct { int32_t sType; const void *pNext; VkFlags flags; const void *inheritance; } BeginInfo;
typedef struct { int32_t sType; const void *pNext; VkFlags src, dst; } MemoryBarrier;
typedef struct { VkDeviceSize src, dst, size; } BufferCopy;
typedef struct {
	int32_t sType; const void *pNext;
	uint32_t waits; const Handle *wait; const VkFlags *waitStages;
	uint32_t commands; void *const *buffers;
	uint32_t signals; const Handle *signal;
} SubmitInfo;

#endif
