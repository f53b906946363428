package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// setting is one way to place pods.
type setting struct {
	name string
	// extender is the prefix of the verbs of kube-scheduler's extender; empty: none.
	extender string
	// marked: the scheduler asks the extender only about pods with the marker.
	marked bool
	// class is the class of the claims; empty: pods without claims.
	class string
	// frozen: all pods are created before the scheduler may place the first.
	frozen bool
	// bound: the claims have their volumes before the pods that are measured are
	// created.
	bound bool
}

// requests is how many API requests a second the scheduler may make. By default it
// makes 50, and that alone would decide how long pods take.
const requests = 5000

// configuration returns the scheduler's, with the extender as deploy/examples have it.
func (s setting) configuration() ([]byte, error) {
	configuration := map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"qps": requests, "burst": requests},
	}
	if s.extender == "" {
		return yaml.Marshal(configuration)
	}
	extender := map[string]any{
		"urlPrefix": s.extender, "filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt",
		"weight": 3, "nodeCacheCapable": true, "ignorable": true, "httpTimeout": "2s",
	}
	if s.marked {
		extender["managedResources"] = []any{map[string]any{"name": keys.MarkerResource, "ignoredByScheduler": true}}
	}
	configuration["extenders"] = []any{extender}
	return yaml.Marshal(configuration)
}

// creators is how many pods are created at once.
const creators = 16

// warmUp is how many pods are placed before a round, so that the scheduler has its
// view of the cluster and its connections.
const warmUp = 10

// outcome is what it takes to place the pods of a round.
type outcome struct {
	took time.Duration
	used usage
}

// round measures the time from the creation of n pods until a new kube-scheduler has
// placed them all.
func (b *bed) round(ctx context.Context, s setting, n int) (outcome, error) {
	configuration, err := s.configuration()
	if err != nil {
		return outcome{}, fmt.Errorf("encode the scheduler's configuration: %w", err)
	}
	if err := b.cluster.ReconfigureScheduler(ctx, configuration); err != nil {
		return outcome{}, err
	}
	b.rounds++
	if err := b.prepare(ctx, s, n); err != nil {
		return outcome{}, fmt.Errorf("%s: %w", s.name, err)
	}
	before := usageNow()
	began, err := b.begin(ctx, s, n)
	if err != nil {
		return outcome{}, err
	}
	ended, err := b.placed.await(ctx, warmUp+n)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", s.name, err)
	}
	used := usageNow().since(before)
	return outcome{took: ended.Sub(began), used: used}, b.clear(ctx)
}

// prepare has the first pods of a round placed and, where the claims of the others
// are to be bound, has them used once by pods that then end.
func (b *bed) prepare(ctx context.Context, s setting, n int) error {
	once := s
	once.bound = false
	if s.bound {
		if err := b.create(ctx, once, "pod", n); err != nil {
			return err
		}
		if _, err := b.placed.await(ctx, n); err != nil {
			return err
		}
		if err := b.endPods(ctx); err != nil {
			return err
		}
	}
	if err := b.create(ctx, once, "warm", warmUp); err != nil {
		return err
	}
	_, err := b.placed.await(ctx, warmUp)
	return err
}

// begin creates the pods of a round and returns since when the scheduler could place
// them.
func (b *bed) begin(ctx context.Context, s setting, n int) (time.Time, error) {
	if !s.frozen {
		began := time.Now()
		return began, b.create(ctx, s, "pod", n)
	}
	if err := b.cluster.PauseScheduler(); err != nil {
		return time.Time{}, err
	}
	if err := b.create(ctx, s, "pod", n); err != nil {
		return time.Time{}, err
	}
	return time.Now(), b.cluster.ResumeScheduler()
}

// create creates pods, each after its claim if it has one.
func (b *bed) create(ctx context.Context, s setting, prefix string, n int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range n {
		group.Go(func() error {
			name := fmt.Sprintf("%s-%d-%d", prefix, b.rounds, i)
			if s.class != "" && !s.bound {
				claim := fabric.NewClaim(namespace, name, s.class)
				if _, err := b.client.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
					return fmt.Errorf("create claim: %w", err)
				}
			}
			if _, err := b.client.CoreV1().Pods(namespace).Create(ctx, newPod(name, s.class), metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create pod: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// clear deletes all pods and claims and waits until nothing is left of them, so that
// one round does not burden the next.
func (b *bed) clear(ctx context.Context) error {
	if err := b.endPods(ctx); err != nil {
		return err
	}
	if err := b.client.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete claims: %w", err)
	}
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return len(b.storage.Volumes()) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the volumes are gone: %w", err)
	}
	return nil
}

// endPods deletes all pods and waits until they are gone.
func (b *bed) endPods(ctx context.Context) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
	if err := b.client.CoreV1().Pods(namespace).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	if _, err := b.placed.await(ctx, 0); err != nil {
		return fmt.Errorf("wait until the pods are gone: %w", err)
	}
	return nil
}
