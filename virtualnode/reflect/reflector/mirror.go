package reflector

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/copies"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

const (
	// stepTimeout bounds all requests of one look at one object.
	stepTimeout = 10 * time.Second
	// firstRetry and lastRetry bound the pause after a failed request.
	firstRetry, lastRetry = 50 * time.Millisecond, 10 * time.Second
	// refusedPeriod is the pause after a refusal, which only people can change.
	refusedPeriod = 30 * time.Second
)

// kind is what sort of object a key is about.
type kind string

const (
	spaceKind     kind = "Namespace"
	configMapKind kind = "ConfigMap"
	secretKind    kind = "Secret"
	serviceKind   kind = "Service"
)

// key names what a worker looks at: an object of home, or what was one. That of
// a namespace has no name; that of a token has the name of its Secret.
type key struct {
	kind            kind
	namespace, name string
}

// mirror keeps the copies in one remote cluster.
type mirror struct {
	*Reflector
	// ctx is that of watches, which begin whenever a namespace becomes usable.
	ctx     context.Context
	session *session.Session
	queue   workqueue.TypedRateLimitingInterface[key]
	// requests are our NamespaceRequests there.
	requests cache.SharedIndexInformer
	secrets  *secretWatches
	tokens   tokens
	told     told

	mu     sync.Mutex
	spaces map[string]*space // by home namespace
}

func newMirror(ctx context.Context, r *Reflector, s *session.Session) *mirror {
	m := &mirror{
		Reflector: r, ctx: ctx, session: s,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[key](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[key]{Name: "reflect-" + s.Cluster, Clock: r.Clock}),
		requests: remoteapi.NewInformer(s.Remote.NamespaceRequests(s.Tenant()), &remotev1alpha1.NamespaceRequest{}, nil, cache.Indexers{}),
		spaces:   map[string]*space{},
	}
	m.secrets = newSecretWatches(ctx, r.Client, func(namespace, name string) { m.queue.Add(key{secretKind, namespace, name}) })
	return m
}

func (m *mirror) place(s *space) copies.Place {
	return copies.Place{HomeID: m.session.HomeID, Namespace: s.namespace}
}

// next looks at one object; false means that there will be no more.
func (m *mirror) next(ctx context.Context) bool {
	k, shutdown := m.queue.Get()
	if shutdown {
		return false
	}
	defer m.queue.Done(k)
	if ctx.Err() != nil {
		return true
	}
	logger := klog.FromContext(ctx).WithValues("kind", k.kind, "namespace", k.namespace, "name", k.name)
	step, cancel := context.WithTimeout(klog.NewContext(ctx, logger), stepTimeout)
	defer cancel()
	after, err := m.look(step, k)
	result := inStep
	var no *refusal
	switch {
	case errors.As(err, &no):
		result = refused
		m.tell(k, no)
		m.queue.Forget(k)
		m.queue.AddAfter(k, refusedPeriod)
	case err != nil:
		result = retried
		logger.V(2).Info("Copy will be tried again", "err", err)
		m.queue.AddRateLimited(k)
	default:
		m.told.forget(k)
		m.queue.Forget(k)
		if after > 0 {
			m.queue.AddAfter(k, after)
		}
	}
	m.looks.WithLabelValues(m.session.Cluster, string(k.kind), result).Inc()
	return true
}

// look brings the copy of one object in step. It returns after which time it is
// to be looked at again even if nothing changes; 0: never.
func (m *mirror) look(ctx context.Context, k key) (time.Duration, error) {
	s := m.space(k.namespace)
	if s == nil {
		// Once its namespace can be used, everything in it is looked at.
		if k.kind == secretKind {
			m.secrets.release(k.namespace, k.name)
		}
		return 0, nil
	}
	switch k.kind {
	case spaceKind:
		m.lookAtSpace(s)
		return 0, nil
	case configMapKind:
		return 0, m.lookAtConfigMap(ctx, s, k)
	case secretKind:
		return m.lookAtSecret(ctx, s, k)
	case serviceKind:
		return m.lookAtService(ctx, s, k)
	}
	return 0, nil
}
