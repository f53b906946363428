package clusters

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/provisioner/mapped"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

// watchMapping begins to tell the keepers of all clusters what changes at home. One
// that comes later looks at all namespaces by itself. The function that is returned
// ends that.
func (r *Registry) watchMapping() (unwatch func() error, err error) {
	pods, err := r.mapping.Pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { r.podChanged(nil, obj) },
		UpdateFunc: r.podChanged,
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			r.podChanged(obj, nil)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	volumes, err := r.mapping.Volumes.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) {
		for _, keeper := range r.keepers() {
			keeper.VolumeGone()
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("watch volumes: %w", err)
	}
	return func() error {
		return errors.Join(r.mapping.Pods.RemoveEventHandler(pods), r.mapping.Volumes.RemoveEventHandler(volumes))
	}, nil
}

func (r *Registry) podChanged(old, obj any) {
	before, _ := old.(*slim.Pod)
	after, _ := obj.(*slim.Pod)
	if before == nil && after == nil {
		return
	}
	for _, keeper := range r.keepers() {
		keeper.PodChanged(before, after)
	}
}

// keepers returns those of all clusters that are connected.
func (r *Registry) keepers() []*mapped.Keeper {
	var keepers []*mapped.Keeper
	for _, id := range r.IDs() {
		c := r.Get(id)
		if c == nil {
			continue
		}
		if connection := c.current(); connection != nil && connection.keeper != nil {
			keepers = append(keepers, connection.keeper)
		}
	}
	return keepers
}
