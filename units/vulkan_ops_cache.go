package units

import (
	"fmt"

	"dchain/units/vk"
)

// vulkanCache is a KV cache on the device: a buffer for each layer, in the layout of shaders/kv.glsl.
type vulkanCache struct {
	dev    *vulkanDevice
	spec   CacheSpec
	layers []*vk.Buffer
}

func (d *vulkanDevice) NewCache(spec CacheSpec) (Cache, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	c := &vulkanCache{dev: d, spec: spec}
	bytes := int64(spec.Slots) * int64(spec.KVHeads) * int64(c.blocks()) * 16 * int64(c.blockVectors())
	if bytes > d.info.MaxRange {
		return nil, vk.NoRoom(fmt.Sprintf("reserving the kv cache: a layer takes %d bytes, %s binds at most %d: use fewer sessions or a shorter context",
			bytes, d.info.Name, d.info.MaxRange))
	}
	for range spec.Layers {
		b, err := d.buffer(bytes, vk.Local)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("reserving the kv cache: %w", err)
		}
		c.layers = append(c.layers, b)
	}
	return c, nil
}

func (c *vulkanCache) Spec() CacheSpec { return c.spec }

func (c *vulkanCache) owner() Device { return c.dev }

func (c *vulkanCache) Close() error {
	for _, b := range c.layers {
		c.dev.free(b)
	}
	c.layers = nil
	return nil
}

// blocks is the number of blocks of a slot and head.
func (c *vulkanCache) blocks() int { return ceilDiv(c.spec.Context, blockPositions) }

// headVectors is the head dimension in vectors of 16 channels.
func (c *vulkanCache) headVectors() int { return ceilDiv(c.spec.HeadDim, 16) }

// blockVectors is a block, in vectors of 16 bytes: two limbs each of K and V, and an exponent for each position of both.
func (c *vulkanCache) blockVectors() int {
	return 4*blockPositions*c.headVectors() + 2*blockPositions/4
}
