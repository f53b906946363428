package soak

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sync/errgroup"
)

// atOnce is how many requests are made at once for claims and pods.
const atOnce = 64

// ask makes all claims, and then their pods.
func (s *soak) ask(ctx context.Context) error {
	core := s.bed.Home.Client().CoreV1()
	var mu sync.Mutex
	var made errgroup.Group
	made.SetLimit(atOnce)
	for _, w := range s.wishes {
		made.Go(func() error {
			claim, err := core.PersistentVolumeClaims(w.namespace).Create(ctx, w.claim(), metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create claim %s: %w", w.key(), err)
			}
			mu.Lock()
			defer mu.Unlock()
			s.owners[claim.UID] = w
			return nil
		})
	}
	if err := made.Wait(); err != nil {
		return err
	}
	using := pods(s.wishes)
	s.summary.Pods = len(using)
	for _, pod := range using {
		made.Go(func() error {
			if _, err := core.Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
			return nil
		})
	}
	return made.Wait()
}

// drop deletes the doomed claims and the pods that use them.
func (s *soak) drop(ctx context.Context) error {
	core := s.bed.Home.Client().CoreV1()
	var gone errgroup.Group
	gone.SetLimit(atOnce)
	for _, w := range s.wishes {
		if !w.doomed {
			continue
		}
		gone.Go(func() error {
			if w.node == "" && w.with == "" {
				if err := core.Pods(w.namespace).Delete(ctx, w.name, metav1.DeleteOptions{}); err != nil {
					return fmt.Errorf("delete pod %s: %w", w.key(), err)
				}
			}
			if err := core.PersistentVolumeClaims(w.namespace).Delete(ctx, w.name, metav1.DeleteOptions{}); err != nil {
				return fmt.Errorf("delete claim %s: %w", w.key(), err)
			}
			return nil
		})
	}
	return gone.Wait()
}

// during strikes programs until all is as it is to be, at most so often, and then
// lets them work.
func (s *soak) during(ctx context.Context, what string, state func() (now string, done bool)) error {
	began := time.Now()
	next, struck := began.Add(s.pause()), 0
	var told time.Time
	for {
		now, done := state()
		if done {
			s.Say("%s, after %v: %s", what, time.Since(began).Round(time.Second), now)
			return nil
		}
		if time.Since(began) > s.Patience {
			s.summary.Problems = append(s.summary.Problems, fmt.Sprintf("waited %v until %s: %s", s.Patience, what, now))
			s.summary.Problems = append(s.summary.Problems, s.stuck()...)
			return nil
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			s.Say("%v: %s", time.Since(began).Round(time.Second), now)
		}
		ended, err := s.programs.mend(ctx)
		if err != nil {
			return err
		}
		if s.summary.EndedByItself += len(ended); len(ended) > 0 {
			s.Say("ended by itself: %v", ended)
		}
		if struck < s.Kills && time.Now().After(next) {
			if err := s.strike(ctx); err != nil {
				return err
			}
			struck++
			next = time.Now().Add(s.pause())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *soak) strike(ctx context.Context) error {
	what, kinds, err := s.programs.strike(ctx, s.random)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		s.summary.Struck[kind]++
	}
	s.Say("%s", what)
	return nil
}

// pause is the time until the next strike: between half and one and a half times
// the mean.
func (s *soak) pause() time.Duration {
	return s.Every/2 + time.Duration(s.random.Int64N(int64(s.Every)))
}

// settle waits until nothing is wrong, for steps that nobody waits for may still be
// taken, and notes what stays wrong.
func (s *soak) settle(ctx context.Context, owners map[types.UID]wish, bound map[types.UID]bool) error {
	for deadline := time.Now().Add(s.Patience / 4); ; {
		world, err := s.view.world(ctx)
		if err != nil {
			return err
		}
		wrong := world.problems(owners, bound)
		for _, violation := range s.bed.HomeNodes.Violations() {
			wrong = append(wrong, violation.String())
		}
		s.summary.Rerouted = len(s.view.twice())
		if len(wrong) == 0 || time.Now().After(deadline) || ctx.Err() != nil {
			s.summary.Problems = append(s.summary.Problems, wrong...)
			return ctx.Err()
		}
		if _, err := s.programs.mend(ctx); err != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// stuck says of some claims and pods that wait what is known of them.
func (s *soak) stuck() []string {
	const most = 5
	var lines []string
	claims, _ := s.view.owned()
	for _, claim := range claims {
		if claim.Status.Phase != corev1.ClaimBound && len(lines) < most {
			lines = append(lines, fmt.Sprintf("claim %s/%s waits: class %s, annotations %v", claim.Namespace, claim.Name, *claim.Spec.StorageClassName, claim.Annotations))
		}
	}
	for _, pod := range all[corev1.Pod](s.view.pods) {
		if slices.Contains(namespaces, pod.Namespace) && pod.Status.Phase != corev1.PodRunning && len(lines) < 2*most {
			lines = append(lines, fmt.Sprintf("pod %s/%s on node %q is %s: %+v", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.Status.Conditions))
		}
	}
	return lines
}
