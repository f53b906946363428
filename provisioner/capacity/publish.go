package capacity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	// atOnce is how many objects are written in parallel.
	atOnce = 8
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
)

// errUnmade is the error while a virtual class lacks objects that kube-scheduler needs.
var errUnmade = errors.New("not every virtual class has its capacities")

// Seen has the objects of the home cluster from the caches.
type Seen struct {
	World
	// Published are the objects that this package has published.
	Published []*storagev1.CSIStorageCapacity
	// Driver is the CSIDriver object of virtual classes, nil if there is none.
	Driver *storagev1.CSIDriver
}

// asks says whether kube-scheduler checks the capacities of virtual classes. If it does, a
// class without objects has no room.
func (s Seen) asks() bool {
	return s.Driver != nil && s.Driver.Spec.StorageCapacity != nil && *s.Driver.Spec.StorageCapacity
}

// Publisher writes what Plan wants. It may stop after any write: new objects are created
// before kube-scheduler is told to check capacities and before the objects that they
// replace are deleted; if they cannot be created, kube-scheduler is told not to check.
type Publisher struct {
	client    kubernetes.Interface
	namespace string
	metrics   *Metrics
	// released are called once kube-scheduler is told not to check capacities any more: it
	// does not retry by itself the pods that found no room.
	released []func()
}

// Publish makes the published objects match the plan. It is idempotent. Call it again after
// an error and after each change.
func (p *Publisher) Publish(ctx context.Context, seen Seen) error {
	return p.write(ctx, seen, Compare(Plan(seen.World), seen.Published, p.namespace))
}

func (p *Publisher) write(ctx context.Context, seen Seen, changes Changes) error {
	if err := p.each(ctx, "create", changes.Create, p.create); err != nil {
		return errors.Join(fmt.Errorf("%w: %w", errUnmade, err), p.heed(ctx, seen, false))
	}
	return errors.Join(
		p.heed(ctx, seen, true),
		p.each(ctx, "update", changes.Update, p.update),
		p.each(ctx, "delete", changes.Delete, p.remove))
}

// Withdraw removes everything that was published. It is idempotent.
func (p *Publisher) Withdraw(ctx context.Context, seen Seen) error {
	if err := p.heed(ctx, seen, false); err != nil {
		return err
	}
	return p.each(ctx, "delete", seen.Published, p.remove)
}

// each writes all objects, even if some writes fail.
func (p *Publisher) each(ctx context.Context, verb string, objects []*storagev1.CSIStorageCapacity,
	write func(context.Context, *storagev1.CSIStorageCapacity) error) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, object := range objects {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			err := write(ctx, object)
			p.metrics.wrote(verb, err)
			if err != nil {
				return fmt.Errorf("%s capacity %s of class %s: %w", verb, object.Name, object.StorageClassName, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (p *Publisher) create(ctx context.Context, object *storagev1.CSIStorageCapacity) error {
	_, err := p.client.StorageV1().CSIStorageCapacities(p.namespace).Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// It was created a moment ago and is not in the cache yet.
		return nil
	}
	return err
}

func (p *Publisher) update(ctx context.Context, object *storagev1.CSIStorageCapacity) error {
	_, err := p.client.StorageV1().CSIStorageCapacities(p.namespace).Update(ctx, object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		// The change will arrive as an event.
		return nil
	}
	return err
}

func (p *Publisher) remove(ctx context.Context, object *storagev1.CSIStorageCapacity) error {
	err := p.client.StorageV1().CSIStorageCapacities(p.namespace).Delete(ctx, object.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &object.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// heed tells kube-scheduler whether to check capacities for claims of virtual classes.
func (p *Publisher) heed(ctx context.Context, seen Seen, want bool) error {
	if seen.Driver == nil || seen.asks() == want {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"storageCapacity": want}})
	if err != nil {
		return fmt.Errorf("encode the patch of CSIDriver %s: %w", keys.Driver, err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = p.client.StorageV1().CSIDrivers().Patch(ctx, keys.Driver, types.MergePatchType, patch, metav1.PatchOptions{})
	p.metrics.wrote("patch", err)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("set storageCapacity of CSIDriver %s to %t: %w", keys.Driver, want, err)
	}
	if !want {
		for _, released := range p.released {
			released()
		}
	}
	return nil
}

// Changes are the writes that make the published objects match the plan.
type Changes struct {
	Create, Update, Delete []*storagev1.CSIStorageCapacity
}

// Compare returns the changes from the published objects, as cached, to the wanted
// segments. An object whose room differs by less than a twentieth stays as it is. Objects
// to update and delete keep their resource version, so that a write fails if they have
// changed since.
func Compare(wanted []Segment, published []*storagev1.CSIStorageCapacity, namespace string) Changes {
	var changes Changes
	have := map[string]*storagev1.CSIStorageCapacity{}
	for _, object := range published {
		have[object.Name] = object
	}
	for _, segment := range wanted {
		old := have[segment.Name()]
		delete(have, segment.Name())
		switch {
		case old == nil || old.DeletionTimestamp != nil:
			changes.Create = append(changes.Create, segment.object(namespace))
		case differs(old.Capacity, segment.Free) || differs(old.MaximumVolumeSize, segment.Largest):
			update := old.DeepCopy()
			update.Capacity, update.MaximumVolumeSize = segment.Free, segment.Largest
			changes.Update = append(changes.Update, update)
		}
	}
	for _, object := range published {
		if have[object.Name] != nil {
			changes.Delete = append(changes.Delete, object)
		}
	}
	return changes
}

// object returns the segment's object. Its owner is the virtual class.
func (s Segment) object(namespace string) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      s.Name(),
			Labels:    map[string]string{keys.Capacity: keys.CapacityPublished},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "StorageClass", Name: s.Class, UID: s.UID,
			}},
		},
		StorageClassName:  s.Class,
		NodeTopology:      s.Nodes,
		Capacity:          s.Free,
		MaximumVolumeSize: s.Largest,
	}
}

// Published says whether an object was published by this package.
func Published(object *storagev1.CSIStorageCapacity, namespace string) bool {
	return object.Namespace == namespace && object.Labels[keys.Capacity] == keys.CapacityPublished
}

// split separates the published objects from those of drivers.
func split(all []*storagev1.CSIStorageCapacity, namespace string) (published, told []*storagev1.CSIStorageCapacity) {
	published = slices.Clone(all)
	published = slices.DeleteFunc(published, func(object *storagev1.CSIStorageCapacity) bool { return !Published(object, namespace) })
	told = slices.DeleteFunc(slices.Clone(all), func(object *storagev1.CSIStorageCapacity) bool { return Published(object, namespace) })
	return published, told
}

// differs says whether the values differ by a twentieth or more.
func differs(before, now *resource.Quantity) bool {
	if before == nil || now == nil {
		return before != now
	}
	a, b := before.AsApproximateFloat64(), now.AsApproximateFloat64()
	return a != b && math.Abs(b-a) >= math.Abs(a)/20
}
