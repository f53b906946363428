package reflector

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// ledgerName is the name of the ConfigMap that lists the Secrets of this home in a namespace of the
// remote cluster.
const ledgerName = "lodestone-reflected"

// ledger is the record of our Secrets in one namespace of the remote cluster: the name of each, and
// the UID of the home object that it is for. It is written before a Secret is created and after one
// is deleted, so it may list too many and never too few. It is the owner of the Secrets: if it is
// deleted, the remote cluster's garbage collector deletes them. An empty ledger is deleted.
type ledger struct {
	client objects[*corev1.ConfigMap]
	homeID string

	// writing is locked by the one writer.
	writing sync.Mutex

	mu      sync.Mutex
	current *corev1.ConfigMap // nil: it does not exist
	deleted types.UID         // UID of a ledger that was deleted
}

func newLedger(client objects[*corev1.ConfigMap], homeID string) *ledger {
	return &ledger{client: client, homeID: homeID}
}

// see records what a watch shows. It reports whether somebody else changed the ledger.
func (l *ledger) see(configMap *corev1.ConfigMap, exists bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !exists {
		if l.current == nil || l.current.UID != configMap.UID {
			return false
		}
		l.current, l.deleted = nil, configMap.UID
		return true
	}
	if configMap.UID == l.deleted {
		return false
	}
	if l.current != nil {
		if order, err := resourceversion.CompareResourceVersion(configMap.ResourceVersion, l.current.ResourceVersion); err == nil && order <= 0 {
			return false
		}
	}
	l.current = configMap
	return true
}

// set records the answer to a request; nil: the ledger is gone.
func (l *ledger) set(configMap *corev1.ConfigMap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if configMap == nil && l.current != nil {
		l.deleted = l.current.UID
	}
	l.current = configMap
}

func (l *ledger) get() *corev1.ConfigMap {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// names returns the names of the Secrets that may exist.
func (l *ledger) names() []string {
	if current := l.get(); current != nil {
		return slices.Sorted(maps.Keys(current.Data))
	}
	return nil
}

// home returns the UID of the home object that a Secret was recorded for, empty if it is not
// recorded, and the UID of the ledger.
func (l *ledger) home(name string) (home, ledger types.UID) {
	if current := l.get(); current != nil {
		return types.UID(current.Data[name]), current.UID
	}
	return "", ""
}

// record writes into the ledger that a Secret may exist from now on.
func (l *ledger) record(ctx context.Context, name string, home types.UID) error {
	return l.write(ctx, func(data map[string]string) bool {
		if data[name] == string(home) {
			return false
		}
		data[name] = string(home)
		return true
	})
}

// erase writes into the ledger that the Secret of a home object is gone.
func (l *ledger) erase(ctx context.Context, name string, home types.UID) error {
	return l.write(ctx, func(data map[string]string) bool {
		if data[name] != string(home) {
			return false
		}
		delete(data, name)
		return true
	})
}

// write changes the ledger; change returns false if there is nothing to do.
func (l *ledger) write(ctx context.Context, change func(data map[string]string) bool) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	for {
		err := l.try(ctx, change)
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			return sortError(err)
		}
		// The ledger in memory is not the one in the cluster.
		if err := l.read(ctx, err); err != nil {
			return err
		}
	}
}

// try changes the ledger as it is known in memory, with one write.
func (l *ledger) try(ctx context.Context, change func(data map[string]string) bool) error {
	current := l.get()
	next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ledgerName, Labels: map[string]string{keys.HomeID: l.homeID}}}
	if current != nil {
		next = current.DeepCopy()
	}
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	if !change(next.Data) {
		return nil
	}
	var err error
	switch {
	case current == nil:
		next, err = l.client.Create(ctx, next, metav1.CreateOptions{})
	case len(next.Data) == 0:
		err = l.client.Delete(ctx, ledgerName, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: ptr.To(current.UID), ResourceVersion: ptr.To(current.ResourceVersion)},
		})
		next = nil
	default:
		next, err = l.client.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write the ledger of Secrets: %w", err)
	}
	l.set(next)
	return nil
}

// read reads the ledger after a write that failed because the ledger had changed.
func (l *ledger) read(ctx context.Context, cause error) error {
	found, err := l.client.Get(ctx, ledgerName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && l.get() == nil:
		return cause // the namespace is missing, not the ledger
	case apierrors.IsNotFound(err):
		l.set(nil)
		return nil
	case err != nil:
		return fmt.Errorf("read the ledger of Secrets: %w", err)
	case found.Labels[keys.HomeID] != l.homeID:
		return &refusal{reason: "NameTaken", message: fmt.Sprintf(
			"Secrets cannot follow pods to namespace %s of the other cluster: its ConfigMap %s was not made by Lodestone and is left alone; ask "+
				"for its removal",
			found.Namespace, ledgerName)}
	case found.DeletionTimestamp != nil:
		return cause
	}
	l.set(found)
	return nil
}
