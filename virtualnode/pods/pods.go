// Package pods runs the pods of virtual nodes in their remote clusters: for each
// session it observes one home pod at a time, lets package decide choose the next
// step, and takes that step. Pods are known by UID. A change on either side brings
// a pod back here by an event, so nothing is polled.
//
// Each session has a queue and workers of its own: a cluster that does not answer
// delays only its own pods. Nothing that is remembered between steps is needed to
// be right; it saves requests and events.
package pods

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// DefaultWorkers is how many pods of one session are worked on at once.
const DefaultWorkers = 16

// Names of the indexes on home pods.
const (
	byNode = "lodestone/pods/node"
	byUID  = "lodestone/pods/uid"
)

// Config is what a Controller needs.
type Config struct {
	// Home talks to the home cluster. The informers are of that cluster, hold
	// whole objects, and may not run yet.
	Home                    kubernetes.Interface
	Pods, Nodes, Namespaces cache.SharedIndexInformer
	Recorder                record.EventRecorder
	Metrics                 prometheus.Registerer
	// Workers is how many pods of one session are worked on at once; 0 means
	// DefaultWorkers.
	Workers int
}

// Controller runs the pods of virtual nodes. It is safe for concurrent use.
type Controller struct {
	config Config
	steps  *prometheus.CounterVec
}

// New returns a Controller. It adds indexes to the informer on pods, so that must
// not have started yet.
func New(config Config) (*Controller, error) {
	if config.Workers == 0 {
		config.Workers = DefaultWorkers
	}
	err := config.Pods.AddIndexers(cache.Indexers{
		byNode: func(obj any) ([]string, error) {
			if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				return []string{pod.Spec.NodeName}, nil
			}
			return nil, nil
		},
		byUID: func(obj any) ([]string, error) {
			if pod, ok := obj.(*corev1.Pod); ok {
				return []string{string(pod.UID)}, nil
			}
			return nil, nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("index pods: %w", err)
	}
	c := &Controller{config: config, steps: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lodestone_virtualnode_pod_steps_total",
		Help: "Steps taken for pods of virtual nodes, by cluster, step and result (success or error).",
	}, []string{"cluster", "step", "result"})}
	if config.Metrics != nil {
		if err := config.Metrics.Register(c.steps); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return c, nil
}

func (c *Controller) homePod(uid types.UID) *corev1.Pod {
	found := indexed(c.config.Pods, byUID, string(uid))
	if len(found) == 0 {
		return nil
	}
	return found[0]
}

func (c *Controller) podsOn(node string) []*corev1.Pod {
	return indexed(c.config.Pods, byNode, node)
}

func indexed(informer cache.SharedIndexInformer, index, key string) []*corev1.Pod {
	objects, err := informer.GetIndexer().ByIndex(index, key)
	if err != nil {
		return nil
	}
	result := make([]*corev1.Pod, 0, len(objects))
	for _, obj := range objects {
		if pod, ok := obj.(*corev1.Pod); ok {
			result = append(result, pod)
		}
	}
	return result
}

// one returns the object of a key, nil if there is none.
func one[T any](store cache.Store, key string) *T {
	obj, ok, err := store.GetByKey(key)
	if err != nil || !ok {
		return nil
	}
	typed, _ := obj.(*T)
	return typed
}
