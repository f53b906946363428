package slim

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// most bounds what a table remembers: whoever may make objects decides what is in
// them. One that is full begins anew, and then the same thing is in memory twice.
const most = 8192

// longest is the longest key, in bytes, that a table remembers: what is long is
// hardly ever had in common.
const longest = 512

// table has one of each thing, found by a key that says all of it.
type table[V any] struct {
	// key returns the key of a thing, and false for what is not to be shared.
	key func(V) (string, bool)
	// own, which may be nil, returns the thing as it is to be shared.
	own func(V) V

	mu    sync.Mutex
	known map[string]V
}

// of returns the one thing that is equal to v.
func (t *table[V]) of(v V) V {
	key, ok := t.key(v)
	if !ok || len(key) > longest {
		return v
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.known[key]; ok {
		return known
	}
	if t.known == nil || len(t.known) >= most {
		t.known = map[string]V{}
	}
	if t.own != nil {
		v = t.own(v)
	}
	t.known[key] = v
	return v
}

// The tables of all informers.
var (
	texts       = &table[string]{key: func(v string) (string, bool) { return v, v != "" }, own: strings.Clone}
	pointers    = &table[*string]{key: pointed[string]}
	volumeModes = &table[*corev1.PersistentVolumeMode]{key: pointed[corev1.PersistentVolumeMode]}
	lists       = &table[[]string]{key: joined[string], own: slices.Clip[[]string]}
	modes       = &table[[]corev1.PersistentVolumeAccessMode]{key: joined[corev1.PersistentVolumeAccessMode], own: slices.Clip[[]corev1.PersistentVolumeAccessMode]}
	maps        = &table[map[string]string]{key: entries, own: shareKeys}
	sizes       = &table[corev1.ResourceList]{key: storageOnly}
	ready       = &table[[]corev1.NodeCondition]{key: func(v []corev1.NodeCondition) (string, bool) { return string(v[0].Status), true }}
	affinities  = &table[*corev1.VolumeNodeAffinity]{key: encoded}
)

func pointed[T ~string](v *T) (string, bool) {
	if v == nil {
		return "", false
	}
	return string(*v), true
}

func joined[T ~string](v []T) (string, bool) {
	var key []byte
	for _, one := range v {
		key = part(key, string(one))
	}
	return string(key), len(v) > 0
}

// part adds a part to a key. Its length comes first: whatever is in a part, no two
// things have the same key.
func part(key []byte, text string) []byte {
	return append(binary.AppendUvarint(key, uint64(len(text))), text...)
}

// entries is the key of a map.
func entries(v map[string]string) (string, bool) {
	var keys []string
	size := 0
	for key, value := range v {
		keys, size = append(keys, key), size+len(key)+len(value)+4
	}
	if len(keys) == 0 || size > longest {
		return "", false
	}
	slices.Sort(keys)
	whole := make([]byte, 0, size)
	for _, key := range keys {
		whole = part(part(whole, key), v[key])
	}
	return string(whole), true
}

// shareKeys lets the keys of maps be in memory once.
func shareKeys(v map[string]string) map[string]string {
	shared := make(map[string]string, len(v))
	for key, value := range v {
		shared[texts.of(key)] = value
	}
	return shared
}

// storageOnly is the key of a list that has a size of storage and nothing else.
func storageOnly(v corev1.ResourceList) (string, bool) {
	size, ok := v[corev1.ResourceStorage]
	if !ok || len(v) != 1 {
		return "", false
	}
	return size.String(), true
}

func encoded(v *corev1.VolumeNodeAffinity) (string, bool) {
	if v == nil {
		return "", false
	}
	content, err := v.Marshal()
	return string(content), err == nil
}
