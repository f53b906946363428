package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// patience is how long the pods of a round may take.
const patience = 3 * time.Minute

// placement counts the pods that are bound to a node. It is told of no others, so
// that counting costs little.
type placement struct {
	mu     sync.Mutex
	bound  int
	last   time.Time
	change chan struct{}
}

func watchPlacement(ctx context.Context, client kubernetes.Interface) (*placement, error) {
	p := &placement{change: make(chan struct{}, 1)}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		}))
	informer := factory.Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.count(1) },
		DeleteFunc: func(any) { p.count(-1) },
	}); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errors.New("watch pods: stopped")
	}
	return p, nil
}

func (p *placement) count(n int) {
	p.mu.Lock()
	p.bound += n
	p.last = time.Now()
	p.mu.Unlock()
	select {
	case p.change <- struct{}{}:
	default:
	}
}

// await waits until so many pods are bound and returns when the last of them was.
func (p *placement) await(ctx context.Context, pods int) (time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	for {
		p.mu.Lock()
		bound, last := p.bound, p.last
		p.mu.Unlock()
		if bound == pods {
			return last, nil
		}
		select {
		case <-p.change:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait until %d pods are bound, %d are: %w", pods, bound, context.Cause(ctx))
		}
	}
}

// newPod returns a pod of ordinary size that mounts a claim of its own name, unless
// class is empty.
func newPod(name, class string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{"app.kubernetes.io/name": "server", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "6c8d9f7b5"},
		},
	}
	container := corev1.Container{Name: "server", Image: "registry.example.com/team/server:1.2.3"}
	for i := range 10 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: "a value of ordinary length"})
	}
	pod.Spec.Containers = []corev1.Container{container}
	if class != "" {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}}
	}
	return pod
}
