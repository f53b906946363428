package mapped

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/namespaces"
)

const (
	// requestTimeout bounds what is asked of the cluster for one namespace.
	requestTimeout = 10 * time.Second
	// lookAgain is how soon a namespace is looked at again that something is left
	// in: not all of that is watched here.
	lookAgain = 5 * time.Second
)

// work looks at one namespace; false at the end.
func (k *Keeper) work(ctx context.Context) bool {
	name, shutdown := k.queue.Get()
	if shutdown {
		return false
	}
	defer k.queue.Done(name)
	after, err := k.sync(ctx, name)
	switch {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("Namespace will be looked at again", "namespace", name, "err", err)
		k.queue.AddRateLimited(name)
		return true
	case after > 0:
		k.queue.AddAfter(name, after)
	}
	k.queue.Forget(name)
	return true
}

// sync takes the next step for one namespace and returns when to look again.
func (k *Keeper) sync(ctx context.Context, name string) (time.Duration, error) {
	home, ok := homeOf(k.Strategy, name, k.HomeID)
	k.mu.Lock()
	ready := k.usable && (k.requests == nil || k.requests.HasSynced())
	k.mu.Unlock()
	if !ok || !ready {
		// Whatever makes it ready has everything looked at.
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	o := k.observe(name, home)
	todo, after := next(o)
	switch todo {
	case ask:
		klog.FromContext(ctx).Info("Asking for a namespace", "namespace", name)
		_, err := k.Remote.NamespaceRequests(k.tenant()).Create(ctx, &remotev1alpha1.NamespaceRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: k.tenant(), Name: name, Labels: map[string]string{keys.HomeID: k.HomeID}},
			Spec:       remotev1alpha1.NamespaceRequestSpec{HomeNamespace: home},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return 0, fmt.Errorf("ask for namespace %s: %w", name, err)
		}
		k.mu.Lock()
		k.waiting[name] = time.Now()
		k.mu.Unlock()
	case retire:
		return k.retire(ctx, o)
	case nothing:
	}
	return after, nil
}

func (k *Keeper) observe(name, home string) observation {
	o := observation{name: name, leaving: k.Leaving(), recorded: slices.Contains(k.Recorded(), name)}
	if obj, ok, err := k.Home.GetStore().GetByKey(home); err == nil && ok {
		if namespace, ok := obj.(*corev1.Namespace); ok {
			o.exists = true
			o.open = namespace.DeletionTimestamp == nil && namespaces.MayUse(namespace, k.Cluster)
		}
	}
	if !o.open || o.leaving {
		o.used = k.Used(name, home)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	o.asking = k.requests != nil
	o.request = k.request(name)
	if needed(o) {
		delete(k.unneeded, name)
		delete(k.left, name)
		return o
	}
	now := time.Now()
	if _, ok := k.unneeded[name]; !ok {
		k.unneeded[name] = now
	}
	o.unneeded = now.Sub(k.unneeded[name])
	return o
}

// request returns the request for a namespace as last seen; the lock is held.
func (k *Keeper) request(name string) *remotev1alpha1.NamespaceRequest {
	if k.requests == nil {
		return nil
	}
	obj, ok, err := k.requests.GetStore().GetByKey(k.tenant() + "/" + name)
	if err != nil || !ok {
		return nil
	}
	request, _ := obj.(*remotev1alpha1.NamespaceRequest)
	return request
}

// retire gives a namespace back once the cluster itself says that nothing is
// left in it that this home must still remove.
func (k *Keeper) retire(ctx context.Context, o observation) (time.Duration, error) {
	what, err := k.remains(ctx, o)
	if err != nil {
		return 0, err
	}
	k.mu.Lock()
	if what == "" {
		delete(k.left, o.name)
	} else {
		k.left[o.name] = what
	}
	k.mu.Unlock()
	if what != "" {
		return lookAgain, nil
	}
	if o.recorded && !o.exists {
		// Before the request: without rights nobody can see any more that it is
		// empty.
		if err := k.Forget(ctx, o.name); err != nil {
			return 0, err
		}
	}
	if o.request == nil || o.request.DeletionTimestamp != nil {
		return 0, nil
	}
	klog.FromContext(ctx).Info("Giving back a namespace", "namespace", o.name)
	err = k.Remote.NamespaceRequests(k.tenant()).Delete(ctx, o.name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &o.request.UID, ResourceVersion: &o.request.ResourceVersion}})
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("give back namespace %s: %w", o.name, err)
	}
	return 0, nil
}

// remains says in a sentence what is left in a namespace; empty for nothing.
func (k *Keeper) remains(ctx context.Context, o observation) (string, error) {
	claims, err := k.Unpublished(ctx, o.name)
	if err != nil {
		if apierrors.IsForbidden(err) && o.request != nil && !stateOf(o.request, o.name, o.request.Spec.HomeNamespace).Given {
			// Never given, or taken back: this home can remove nothing there.
			return "", nil
		}
		return "", fmt.Errorf("look for backing claims in namespace %s: %w", o.name, err)
	}
	if claims > 0 {
		return fmt.Sprintf("%d backing claims that were never used are left there in namespace %s: delete them at home", claims, o.name), nil
	}
	if !o.asking {
		return "", nil
	}
	return k.copies(ctx, o.name)
}

// State returns what is known of a namespace.
func (k *Keeper) State(name string) State {
	home, _ := homeOf(k.Strategy, name, k.HomeID)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.requests == nil {
		return State{}
	}
	state := stateOf(k.request(name), name, home)
	if state.Given {
		delete(k.waiting, name)
		return state
	}
	if _, ok := k.waiting[name]; !ok {
		k.waiting[name] = time.Now()
	}
	state.Since = k.waiting[name]
	return state
}

// Outstanding says what keeps namespaces from being given back once the cluster
// is to be left; empty for nothing.
func (k *Keeper) Outstanding() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.requests == nil {
		return ""
	}
	if !k.requests.HasSynced() {
		return "it is being read which namespaces were asked for there"
	}
	if len(k.left) > 0 {
		return k.left[slices.Sorted(maps.Keys(k.left))[0]]
	}
	var names []string
	for _, obj := range k.requests.GetStore().List() {
		if request, ok := obj.(*remotev1alpha1.NamespaceRequest); ok && request.DeletionTimestamp == nil {
			names = append(names, request.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("namespaces there are being given back: %s", plain(strings.Join(names, ", "), 200))
}
