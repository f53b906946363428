// This file has the Secrets that follow pods. It is long because home may write them there but not read them: what exists is
// known from the ledger, whose Secret one is from a patch that tests it, and what others changed not at all.

package reflector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/copies"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/needs"
)

// rewritePeriod is how often an unchanged Secret is written again: home cannot see what others
// changed there.
const rewritePeriod = 10 * time.Minute

// wanted is a Secret that should exist.
type wanted struct {
	// home is the UID of the home object that it is for, version its state.
	home    types.UID
	version string
	// secret is what to write.
	secret *corev1.Secret
}

// written is what is known of a Secret that this program has written.
type written struct {
	home    types.UID
	version string
	ledger  types.UID // UID of its owner
	at      time.Time
}

func (s *remoteNamespace) remember(name string, w written) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[name] = w
}

func (s *remoteNamespace) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.written, name)
}

func (s *remoteNamespace) remembered(name string) written {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written[name]
}

// secretNames returns the names of the Secrets that may exist.
func (s *remoteNamespace) secretNames() []string {
	s.mu.Lock()
	names := slices.Collect(maps.Keys(s.written))
	s.mu.Unlock()
	return append(names, s.ledger.names()...)
}

// syncSecret updates a Secret: a copy, or a token.
func (c *clusterReflector) syncSecret(ctx context.Context, s *remoteNamespace, k key) (time.Duration, error) {
	if strings.HasPrefix(k.name, needs.TokenPrefix) {
		return c.syncToken(ctx, s, k)
	}
	if !c.needed(k) {
		c.secrets.unwatch(k.namespace, k.name)
		return 0, c.syncRecorded(ctx, s, k, nil)
	}
	home, known, err := c.secrets.watch(k.namespace, k.name)
	switch {
	case err != nil:
		return 0, &refusal{reason: "SecretUnreadable", message: fmt.Sprintf(
			"Secret %s did not follow its pods to cluster %s, for it cannot be read: %v; see what rights the virtual nodes need", k.name,
			c.session.Cluster, err)}
	case !known:
		return 0, nil // this is called again when it is known
	case home == nil || copies.IsCopy(home):
		return 0, c.syncRecorded(ctx, s, k, nil)
	case home.Type == corev1.SecretTypeServiceAccountToken:
		if err := c.syncRecorded(ctx, s, k, nil); err != nil {
			return 0, err
		}
		return 0, &refusal{reason: "TokenStaysHome", message: fmt.Sprintf(
			"Secret %s holds a token of the home API, which does not travel: annotate the pod with lodestone.dev/service-account-token=home-api "+
				"to give it one of its own", k.name)}
	}
	err = c.syncRecorded(ctx, s, k, &wanted{home: home.UID, version: home.ResourceVersion, secret: c.destination(s).Secret(home)})
	return rewritePeriod, err
}

// syncRecorded takes the steps from what the ledger records to what is wanted. After an error at
// any point, the next call continues from there.
func (c *clusterReflector) syncRecorded(ctx context.Context, s *remoteNamespace, k key, want *wanted) error {
	recorded, _ := s.ledger.home(k.name)
	have := s.remembered(k.name)
	if recorded == "" {
		recorded = have.home // somebody changed the ledger
	}
	if recorded != "" && (want == nil || want.home != recorded) {
		if err := c.removeSecret(ctx, s, k.name, recorded); err != nil {
			return err
		}
		if err := s.ledger.erase(ctx, k.name, recorded); err != nil {
			return err
		}
		s.forget(k.name)
		have = written{}
	}
	if want == nil {
		return nil
	}
	if err := s.ledger.record(ctx, k.name, want.home); err != nil {
		return err
	}
	_, ledger := s.ledger.home(k.name)
	fresh := have.version == want.version && have.ledger == ledger && c.Clock.Since(have.at) < rewritePeriod
	if have.home == want.home && fresh {
		return nil
	}
	if err := c.writeSecret(ctx, s, k, want.secret, have.home != "", ledger); err != nil {
		return err
	}
	s.remember(k.name, written{home: want.home, version: want.version, ledger: ledger, at: c.Clock.Now()})
	return nil
}

// writeSecret creates or updates a Secret, without the right to read it. known says that it
// existed.
func (c *clusterReflector) writeSecret(ctx context.Context, s *remoteNamespace, k key, want *corev1.Secret, known bool,
	ledger types.UID) error {
	want.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: ledgerName, UID: ledger}}
	if !known {
		if err := c.createSecret(ctx, s, want); !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	patch, err := copies.SecretPatch(want)
	if err != nil {
		return err
	}
	patched, err := c.session.Client.CoreV1().Secrets(s.namespace).Patch(ctx, k.name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil && patched.Type == want.Type:
		return nil
	case apierrors.IsNotFound(err):
		s.forget(k.name) // the next attempt creates it
		return fmt.Errorf("patch Secret %s/%s: %w", s.namespace, k.name, err)
	case err != nil && !apierrors.IsInvalid(err):
		return sortError(fmt.Errorf("patch Secret %s/%s: %w", s.namespace, k.name, err))
	}
	// Either it is not ours, or the fields that differ cannot be changed.
	s.forget(k.name)
	err = c.removeSecret(ctx, s, k.name, types.UID(want.Labels[keys.Reflected]))
	if err != nil {
		return err
	}
	if err := c.createSecret(ctx, s, want); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return c.foreign(s, k)
}

func (c *clusterReflector) createSecret(ctx context.Context, s *remoteNamespace, want *corev1.Secret) error {
	_, err := c.session.Client.CoreV1().Secrets(s.namespace).Create(ctx, want, metav1.CreateOptions{})
	if err != nil {
		return sortError(fmt.Errorf("create Secret %s/%s: %w", s.namespace, want.Name, err))
	}
	return nil
}

// removeSecret deletes a Secret if it is the copy of the home object with the given UID, and
// changes no other.
func (c *clusterReflector) removeSecret(ctx context.Context, s *remoteNamespace, name string, home types.UID) error {
	found, err := c.proveSecret(ctx, s, name, home)
	if errors.Is(err, errForeign) {
		return nil
	}
	if err != nil || found == nil {
		return err
	}
	klog.FromContext(ctx).V(4).Info("Removing copy")
	err = c.session.Client.CoreV1().Secrets(s.namespace).Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &found.UID, ResourceVersion: &found.ResourceVersion},
	})
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return sortError(fmt.Errorf("delete Secret %s/%s: %w", s.namespace, name, err))
}

// proveSecret returns a Secret that is the copy of the home object with the given UID, nil if it
// does not exist, errForeign if it is another one. It changes nothing: home has no right to read
// Secrets, so it sends a patch that tests the labels.
func (c *clusterReflector) proveSecret(ctx context.Context, s *remoteNamespace, name string, home types.UID) (*corev1.Secret, error) {
	patch, err := copies.ProofPatch(c.session.HomeID, home)
	if err != nil {
		return nil, err
	}
	secret, err := c.session.Client.CoreV1().Secrets(s.namespace).Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil:
		return secret, nil
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsInvalid(err):
		return nil, errForeign
	}
	return nil, sortError(fmt.Errorf("find out whose Secret %s/%s is: %w", s.namespace, name, err))
}

// tokenLifetime is the requested lifetime of a home API token.
const tokenLifetime = time.Hour

// token is a home API token of a pod.
type token struct {
	value, audience string
	number          int // counts the tokens of the pod
	renew           time.Time
}

// tokens are the tokens in use, by the name of their Secret.
type tokens struct {
	mu     sync.Mutex
	byName map[string]token
}

func (t *tokens) get(name string) token {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byName[name]
}

func (t *tokens) set(name string, value token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName == nil {
		t.byName = map[string]token{}
	}
	t.byName[name] = value
}

func (t *tokens) drop(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byName, name)
}

// syncToken updates the Secret with the home API token of a pod.
func (c *clusterReflector) syncToken(ctx context.Context, s *remoteNamespace, k key) (time.Duration, error) {
	var pod *corev1.Pod
	for pod = range c.needing(k) {
		break // there is only one: its UID is in the name
	}
	if pod == nil {
		c.tokens.drop(k.name)
		return 0, c.syncRecorded(ctx, s, k, nil)
	}
	authority, err := c.configMapLister.ConfigMaps(k.namespace).Get(needs.RootCA)
	if err != nil {
		return 0, fmt.Errorf("get the certificate authority of the home API: %w", err)
	}
	current, err := c.currentToken(ctx, k.name, pod)
	if err != nil {
		return 0, err
	}
	err = c.syncRecorded(ctx, s, k, &wanted{
		home: pod.UID, version: strconv.Itoa(current.number) + "/" + authority.ResourceVersion,
		secret: c.destination(s).Token(k.name, pod, current.value, authority.Data[corev1.ServiceAccountRootCAKey]),
	})
	return min(max(current.renew.Sub(c.Clock.Now()), time.Second), rewritePeriod), err
}

// currentToken returns the token of a pod; it requests a new one when that is due.
func (c *clusterReflector) currentToken(ctx context.Context, name string, pod *corev1.Pod) (token, error) {
	audience := needs.Of(pod).Audience
	current := c.tokens.get(name)
	now := c.Clock.Now()
	if current.audience == audience && now.Before(current.renew) {
		return current, nil
	}
	account := pod.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	audiences := []string{audience}
	if audience == keys.HomeAudience {
		audiences = nil // the API server's own
	}
	response, err := c.Client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:         audiences,
			ExpirationSeconds: ptr.To(int64(tokenLifetime.Seconds())),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err):
		return token{},
			&refusal{reason: "NoToken", message: fmt.Sprintf("The pod got no token of the home API: %v; remove its annotation "+
				"lodestone.dev/service-account-token, or see what rights the virtual nodes need", err)}
	case err != nil:
		return token{}, fmt.Errorf("request a token of service account %s/%s: %w", pod.Namespace, account, err)
	}
	// The API server may have chosen another lifetime.
	lifetime := response.Status.ExpirationTimestamp.Sub(now)
	current = token{value: response.Status.Token, audience: audience, number: current.number + 1, renew: now.Add(lifetime * 4 / 5)}
	c.tokens.set(name, current)
	return current, nil
}

// secretWatches watches single Secrets of home by their names, so that no others are read. It is
// safe for concurrent use.
type secretWatches struct {
	// ctx is the context of watches, which begin whenever a Secret is needed.
	ctx     context.Context
	client  kubernetes.Interface
	changed func(namespace, name string)

	mu      sync.Mutex
	watches map[types.NamespacedName]*secretWatch
}

type secretWatch struct {
	cache.SharedIndexInformer
	stop context.CancelFunc

	mu     sync.Mutex
	failed error // error of the last request
}

// newSecretWatches returns a secretWatches that calls changed whenever a watched Secret may have
// changed.
func newSecretWatches(ctx context.Context, client kubernetes.Interface, changed func(namespace, name string)) *secretWatches {
	return &secretWatches{ctx: ctx, client: client, changed: changed, watches: map[types.NamespacedName]*secretWatch{}}
}

// watch watches a Secret from now on. It returns the Secret, nil if it does not exist, and whether
// that is known yet; err says why it cannot be read.
func (w *secretWatches) watch(namespace, name string) (secret *corev1.Secret, known bool, err error) {
	at := types.NamespacedName{Namespace: namespace, Name: name}
	w.mu.Lock()
	held, ok := w.watches[at]
	if !ok {
		held = w.start(at)
		w.watches[at] = held
	}
	w.mu.Unlock()
	if !held.HasSynced() {
		return nil, false, held.failure()
	}
	return controller.Get[corev1.Secret](held, at.String()), true, nil
}

func (w *secretWatches) unwatch(namespace, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := types.NamespacedName{Namespace: namespace, Name: name}
	if held, ok := w.watches[at]; ok {
		held.stop()
		delete(w.watches, at)
	}
}

// watched returns the names of the Secrets of a namespace that are watched.
func (w *secretWatches) watched(namespace string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for at := range w.watches {
		if at.Namespace == namespace {
			names = append(names, at.Name)
		}
	}
	return names
}

func (w *secretWatches) start(at types.NamespacedName) *secretWatch {
	client := w.client.CoreV1().Secrets(at.Namespace)
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, at.Name).String()
	held := &secretWatch{}
	held.SharedIndexInformer = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			list, err := client.List(ctx, options)
			return list, w.note(at, held, err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			watch, err := client.Watch(ctx, options)
			return watch, w.note(at, held, err)
		},
	}, &corev1.Secret{}, 0, cache.Indexers{})
	_ = held.SetTransform(controller.DropManagedFields)
	_, _ = controller.Watch(held.SharedIndexInformer, func(_, _ *corev1.Secret) { w.changed(at.Namespace, at.Name) })
	ctx, stop := context.WithCancel(w.ctx)
	held.stop = stop
	go held.RunWithContext(ctx)
	go func() {
		select {
		case <-held.HasSyncedChecker().Done():
			w.changed(at.Namespace, at.Name)
		case <-ctx.Done():
		}
	}()
	return held
}

// note records the result of a request, and returns its error.
func (w *secretWatches) note(at types.NamespacedName, held *secretWatch, err error) error {
	held.mu.Lock()
	first := held.failed == nil && err != nil
	held.failed = err
	held.mu.Unlock()
	if first && w.ctx.Err() == nil {
		w.changed(at.Namespace, at.Name)
	}
	return err
}

func (h *secretWatch) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

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
