package snapshots

import (
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

// byVolume is the index of contents by namespace and name of the backing claim in a
// remote cluster that their volume's handle names: its UID there is not that of one
// which was made anew.
const byVolume = "lodestone/volume"

// ContentsOf returns the contents of snapshots of a backing claim in a remote cluster,
// and of those of that name in others.
func (h *Home) ContentsOf(backing types.NamespacedName) []*volumesnapshot.Content {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	informer := h.contents
	h.mu.Unlock()
	if informer == nil {
		return nil
	}
	objects, err := informer.GetIndexer().ByIndex(byVolume, backing.String())
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
