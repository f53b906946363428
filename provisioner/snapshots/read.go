package snapshots

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// Contents returns all contents as last seen.
func (h *Home) Contents() []*volumesnapshot.Content {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	informer := h.contents
	h.mu.Unlock()
	if informer == nil {
		return nil
	}
	var found []*volumesnapshot.Content
	for _, obj := range informer.GetStore().List() {
		if content, ok := obj.(*volumesnapshot.Content); ok {
			found = append(found, content)
		}
	}
	return found
}

// byVolume is the index of contents by the last part of their volume's handle, which
// is the UID of a backing claim where the data is in a remote cluster.
const byVolume = "lodestone/volume"

func lastOf(handle string) string { return handle[strings.LastIndex(handle, "/")+1:] }

// ContentsOf returns the contents of snapshots of a backing claim in a remote cluster.
func (h *Home) ContentsOf(backing types.UID) []*volumesnapshot.Content {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	informer := h.contents
	h.mu.Unlock()
	if informer == nil {
		return nil
	}
	objects, err := informer.GetIndexer().ByIndex(byVolume, string(backing))
	if err != nil {
		return nil
	}
	var found []*volumesnapshot.Content
	for _, obj := range objects {
		if content, ok := obj.(*volumesnapshot.Content); ok {
			found = append(found, content)
		}
	}
	return found
}

func cached[T any](h *Home, of func() cache.SharedIndexInformer, key string) *T {
	if h == nil || key == "" {
		return nil
	}
	h.mu.Lock()
	informer := of()
	h.mu.Unlock()
	if informer == nil {
		return nil
	}
	obj, ok, err := informer.GetStore().GetByKey(key)
	if err != nil || !ok {
		return nil
	}
	typed, _ := obj.(*T)
	return typed
}
