package capacity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	// atOnce is how many objects are written at once.
	atOnce = 8
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
)

// errUnmade is the error of objects that kube-scheduler would miss.
var errUnmade = errors.New("not every virtual class has its capacities")

// Seen is what was last seen of the home cluster.
type Seen struct {
	World
	// Published are the objects that were published here.
	Published []*storagev1.CSIStorageCapacity
	// Driver is the CSIDriver object of virtual classes, nil if there is none.
	Driver *storagev1.CSIDriver
}

// asks says whether kube-scheduler asks for room for claims of virtual classes.
// Then it finds none for a class without objects.
func (s Seen) asks() bool {
	return s.Driver != nil && s.Driver.Spec.StorageCapacity != nil && *s.Driver.Spec.StorageCapacity
}

// Publisher writes what is to be published. Each step can be its last: objects
// come before kube-scheduler is told to heed them and before those that they
// replace go, and where they cannot be made kube-scheduler is told to heed none.
type Publisher struct {
	client    kubernetes.Interface
	namespace string
	metrics   *Metrics
	// released is called once kube-scheduler is told to ask for no room any more:
	// of itself it does not look again at the pods that it found none for.
	released func()
}

// Publish brings the home cluster from what was seen nearer to what is to be
// published. It is idempotent. After an error, and after each change that is seen
// it is to be called again.
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

// Withdraw undoes all that was published. It is idempotent.
func (p *Publisher) Withdraw(ctx context.Context, seen Seen) error {
	if err := p.heed(ctx, seen, false); err != nil {
		return err
	}
	return p.each(ctx, "delete", seen.Published, p.remove)
}

// each writes all objects, whatever becomes of one of them.
func (p *Publisher) each(ctx context.Context, verb string, objects []*storagev1.CSIStorageCapacity, write func(context.Context, *storagev1.CSIStorageCapacity) error) error {
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
		// It was made a moment ago and is not seen yet.
		return nil
	}
	return err
}

func (p *Publisher) update(ctx context.Context, object *storagev1.CSIStorageCapacity) error {
	_, err := p.client.StorageV1().CSIStorageCapacities(p.namespace).Update(ctx, object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		// That will be seen.
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

// heed tells kube-scheduler whether to ask for room for claims of virtual
// classes.
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
		p.released()
	}
	return nil
}
