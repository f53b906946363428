package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/kubeconfig"
	"github.com/lodestone-storage/lodestone/virtualnode/node"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// running is a session and all that works for it.
type running struct {
	session *session.Session
	begun   time.Time
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // once done
}

func (r *running) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// keepSession makes sure that a session with the present kubeconfig runs. The
// error is one sentence for the user, and there is no session then; the duration
// is how soon to look again, 0 for the usual interval.
func (t *tenure) keepSession(ctx context.Context, remote *v1alpha1.RemoteCluster) (time.Duration, error) {
	data, err := t.kubeconfig(remote)
	if err != nil {
		// Whoever takes the kubeconfig away wants nothing more done there, least of
		// all while the RemoteCluster is being deleted.
		t.endSession()
		return 0, err
	}
	fingerprint := fingerprint(remote, data)
	if t.current != nil && t.fingerprint == fingerprint {
		return 0, nil
	}
	if t.current == nil && t.fingerprint == fingerprint && time.Now().Before(t.pause) {
		return time.Until(t.pause), nil
	}
	t.endSession()
	config, err := kubeconfig.Parse(data)
	if err != nil {
		return 0, err
	}
	s, err := session.Open(remote, config, t.config.HomeID)
	if err != nil {
		return 0, err
	}
	t.fingerprint = fingerprint
	t.current = t.begin(ctx, s)
	return 0, nil
}

// fingerprint changes with all that a session depends on.
func fingerprint(remote *v1alpha1.RemoteCluster, kubeconfig []byte) string {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s\n%s\n%s\n", remote.UID, remote.Spec.Namespaces.Strategy, remote.Spec.PodNetwork)
	_, _ = sum.Write(kubeconfig)
	return hex.EncodeToString(sum.Sum(nil))
}

// begin starts the node's manager, and the workers once there is a node. All end
// when one of them ends.
func (t *tenure) begin(ctx context.Context, s *session.Session) *running {
	ctx, cancel := context.WithCancel(ctx)
	r := &running{session: s, begun: time.Now(), cancel: cancel, done: make(chan struct{})}
	t.config.Endpoints.Use(t.id, s)
	t.config.Metrics.began(t.id)
	var mu sync.Mutex
	var group sync.WaitGroup
	end := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			r.err = err
		}
		cancel()
	}
	admitted := func() {
		klog.FromContext(ctx).Info("Session began", "node", s.Node)
		for _, work := range t.config.Workers {
			group.Go(func() { end(work(ctx, s)) })
		}
	}
	group.Go(func() { end(t.manager.Run(ctx, s, admitted)) })
	go func() {
		group.Wait()
		s.Close()
		close(r.done)
		t.Poke()
	}()
	return r
}

// endSession ends the session, if there is one, and waits for it.
func (t *tenure) endSession() {
	if t.current == nil {
		return
	}
	t.config.Endpoints.Use(t.id, nil)
	t.current.cancel()
	<-t.current.done
	t.current = nil
	t.fingerprint, t.failures, t.pause = "", 0, time.Time{}
}

// reap sees to a session that ended by itself: the next begins after a pause,
// which grows with each failure in a row.
func (t *tenure) reap(ctx context.Context) {
	err, lasted := t.current.err, time.Since(t.current.begun)
	t.current = nil
	if errors.Is(err, node.ErrReturned) {
		klog.FromContext(ctx).Info("Session is renewed, since the cluster answers again")
		t.failures = 0
		return
	}
	if lasted > time.Minute {
		t.failures = 0
	}
	t.failures++
	pause := min(time.Second<<min(t.failures-1, 5), 30*time.Second)
	t.pause = time.Now().Add(pause)
	klog.FromContext(ctx).Error(err, "Session ended and begins again", "pause", pause)
}

// kubeconfig returns the kubeconfig of a RemoteCluster. The error is one sentence
// for the user.
func (t *tenure) kubeconfig(remote *v1alpha1.RemoteCluster) ([]byte, error) {
	ref := remote.Spec.KubeconfigSecretRef
	if ref.Namespace != t.config.Namespace {
		return nil, fmt.Errorf("the kubeconfig Secret must be in namespace %s, where Lodestone runs, not in %s: move it", t.config.Namespace, ref.Namespace)
	}
	key := ref.Key
	if key == "" {
		key = "kubeconfig"
	}
	obj, ok, err := t.config.Secrets.GetStore().GetByKey(cache.NewObjectName(ref.Namespace, ref.Name).String())
	secret, _ := obj.(*corev1.Secret)
	if err != nil || !ok || secret == nil {
		return nil, fmt.Errorf("there is no Secret %s/%s: create it with the kubeconfig under key %s", ref.Namespace, ref.Name, key)
	}
	if len(secret.Data[key]) == 0 {
		return nil, fmt.Errorf("the Secret %s/%s has no key %s: put the kubeconfig there", ref.Namespace, ref.Name, key)
	}
	return secret.Data[key], nil
}
