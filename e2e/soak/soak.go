// Package soak asks for many virtual claims at once, on all routes, while it kills
// all of Lodestone's programs at random, and then deletes most of them in the same
// way. In the end each claim must be bound, to one volume, and nothing may be left of
// those that are gone but what was to be kept.
package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Options say how much is asked for; none may be zero but Seed.
type Options struct {
	// Seed chooses the claims, and whom to kill when.
	Seed uint64
	// Claims is how many are made at once.
	Claims int
	// Every is the mean time between two kills.
	Every time.Duration
	// Kills is how many there are at most in each half.
	Kills int
	// Patience bounds each half.
	Patience time.Duration
	// Say is told what goes on.
	Say func(format string, args ...any)
}

// Summary is what was seen.
type Summary struct {
	Seed           uint64         `json:"seed"`
	Claims         int            `json:"claims"`
	Pods           int            `json:"pods"`
	Struck         map[string]int `json:"struck"`
	EndedByItself  int            `json:"endedByItself"`
	BoundSeconds   float64        `json:"boundSeconds"`
	DeletedSeconds float64        `json:"deletedSeconds"`
	// Rerouted is for how many claims more than one backing claim was made, one
	// after the other, as when a choice was given up.
	Rerouted int      `json:"rerouted"`
	Problems []string `json:"problems"`
}

// soak is one run.
type soak struct {
	Options
	bed      *fabric.Fabric
	programs *programs
	view     *view
	random   *rand.Rand
	wishes   []wish
	owners   map[types.UID]wish
	summary  Summary
}

// namespaces are those of the claims.
var namespaces = []string{"soak-a", "soak-b", "soak-c"}

// Run starts two clusters with all of Lodestone's programs, soaks them and returns
// what was seen. An error means that something could not be started or done; what
// Lodestone did wrong is in the summary's problems.
func Run(ctx context.Context, o Options) (Summary, error) {
	bed, err := fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, Agent: true, VirtualNode: true})
	if err != nil {
		return Summary{}, err
	}
	defer bed.Stop()
	s := &soak{
		Options: o, bed: bed, random: rand.New(rand.NewPCG(o.Seed, 0)), //nolint:gosec // it is to be repeatable
		owners: map[types.UID]wish{}, summary: Summary{Seed: o.Seed, Claims: o.Claims, Struck: map[string]int{}, Problems: []string{}},
	}
	err = s.run(ctx)
	if err != nil || len(s.summary.Problems) > 0 {
		bed.Home.KeepLogs()
		bed.West.KeepLogs()
		s.Say("the logs are in %s and %s", bed.Home.LogDirectory(), bed.West.LogDirectory())
	}
	return s.summary, err
}

func (s *soak) run(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	s.wishes = plan(s.random, namespaces, s.Claims)
	began := time.Now()
	if err := s.ask(ctx); err != nil {
		return err
	}
	wanted, pods := len(s.wishes), s.summary.Pods
	if err := s.during(ctx, "claims are bound and pods run", func() (string, bool) {
		_, bound := s.view.owned()
		running := s.view.running()
		return fmt.Sprintf("%d of %d claims are bound, %d of %d pods run", bound, wanted, running, pods), bound == wanted && running == pods
	}); err != nil {
		return err
	}
	s.summary.BoundSeconds = time.Since(began).Seconds()
	bound := map[types.UID]bool{}
	for uid := range s.owners {
		bound[uid] = true
	}
	if err := s.settle(ctx, s.owners, bound); err != nil || len(s.summary.Problems) > 0 {
		return err
	}
	return s.remove(ctx, bound)
}

// remove is the second half: doomed claims are deleted, with their pods.
func (s *soak) remove(ctx context.Context, bound map[types.UID]bool) error {
	began := time.Now()
	left := map[types.UID]wish{}
	for uid, w := range s.owners {
		if w.doomed {
			delete(bound, uid)
		}
		if !w.doomed || w.class == keptClass {
			left[uid] = w
		}
	}
	if err := s.drop(ctx); err != nil {
		return err
	}
	if err := s.during(ctx, "what was deleted is gone", func() (string, bool) {
		claims, _ := s.view.owned()
		volumes := len(s.bed.HomeStorage.Volumes()) + len(s.bed.WestStorage.Volumes())
		virtual := 0
		for _, volume := range all[corev1.PersistentVolume](s.view.volumes[keys.Home]) {
			if volume.Annotations[keys.Backing] != "" {
				virtual++
			}
		}
		return fmt.Sprintf("%d claims for %d, %d virtual volumes for %d, %d volumes stored", len(claims), len(bound), virtual, len(left),
				volumes),
			len(claims) == len(bound) && virtual == len(left)
	}); err != nil {
		return err
	}
	s.summary.DeletedSeconds = time.Since(began).Seconds()
	return s.settle(ctx, left, bound)
}

// prepare starts the programs and makes home and west know each other.
func (s *soak) prepare(ctx context.Context) (err error) {
	if s.view, err = newView(ctx, s.bed); err != nil {
		return err
	}
	for _, namespace := range namespaces {
		if err := s.bed.Home.MakeNamespace(ctx, namespace); err != nil {
			return err
		}
		if _, err := s.bed.Home.Kubectl(ctx, "", "label", "namespace", namespace, keys.Offload+"="+keys.OffloadEnabled); err != nil {
			return err
		}
	}
	for name, class := range map[string]storagev1.StorageClass{
		nowClass:  {Parameters: map[string]string{keys.RemoteClass: fabric.WestNow}},
		keptClass: {ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimRetain)},
	} {
		class.Name, class.Provisioner = name, keys.Driver
		class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
		if _, err := s.bed.Home.Client().StorageV1().StorageClasses().Create(ctx, &class, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make virtual class %s: %w", name, err)
		}
	}
	if s.programs, err = startPrograms(ctx, s.bed); err != nil {
		return err
	}
	if err := s.bed.Admit(ctx, nil); err != nil {
		return err
	}
	return s.bed.AwaitNode(ctx, fabric.WestNode, corev1.ConditionTrue)
}

// Classes of the claims beside fabric.Class: the real class west-now, which binds
// at once, and one whose volumes stay when their claims are deleted.
const (
	nowClass  = "soak-now"
	keptClass = "soak-kept"
)

// homeNode takes the claims that are sent home without a pod.
const homeNode = "home-1"

// wish is what is asked for one claim.
type wish struct {
	namespace, name, class string
	// node is where the claim is sent as kube-scheduler would, without a pod; empty:
	// a pod that uses it is made.
	node string
	// place is where the pod must run: keys.Home, fabric.WestNode or, where
	// kube-scheduler and the extender choose, empty.
	place string
	// with is the name of another claim of the same pod, of an earlier wish; the pod
	// has the name of that claim.
	with string
	// doomed claims are deleted in the second half.
	doomed bool
}

// plan returns what is asked for, the same for the same seed.
func plan(random *rand.Rand, namespaces []string, claims int) []wish {
	var wishes []wish
	places := []string{keys.Home, fabric.WestNode, ""}
	classes := []string{fabric.Class, fabric.Class, nowClass, keptClass}
	for i := range claims {
		w := wish{
			namespace: namespaces[random.IntN(len(namespaces))],
			name:      fmt.Sprintf("data-%d", i),
			class:     classes[random.IntN(len(classes))],
			place:     places[random.IntN(len(places))],
			doomed:    random.IntN(4) > 0,
		}
		switch kind := random.IntN(8); {
		case kind < 4: // most without a pod: so many would only keep kube-scheduler busy
			w.node = []string{homeNode, fabric.WestNode}[random.IntN(2)]
			w.place = ""
		case kind == 4 && i > 0 && wishes[i-1].node == "" && wishes[i-1].with == "":
			before := wishes[i-1]
			w.with, w.namespace, w.place, w.doomed = before.name, before.namespace, before.place, before.doomed
		}
		wishes = append(wishes, w)
	}
	return wishes
}

func (w wish) key() string { return w.namespace + "/" + w.name }

func (w wish) claim() *corev1.PersistentVolumeClaim {
	claim := fabric.NewClaim(w.namespace, w.name, w.class)
	if w.node != "" {
		claim.Annotations = map[string]string{keys.SelectedNode: w.node}
	}
	return claim
}

// pods returns the pods that use the claims.
func pods(wishes []wish) []*corev1.Pod {
	using := map[string][]string{}
	for _, w := range wishes {
		if w.with != "" {
			using[w.namespace+"/"+w.with] = append(using[w.namespace+"/"+w.with], w.name)
		}
	}
	var all []*corev1.Pod
	for _, w := range wishes {
		if w.node != "" || w.with != "" {
			continue
		}
		pod := fabric.NewPod(w.namespace, w.name, append([]string{w.name}, using[w.key()]...)...)
		switch w.place {
		case keys.Home:
			pod = fabric.AtHome(pod)
		case fabric.WestNode:
			pod = fabric.InWest(pod)
		}
		all = append(all, pod)
	}
	return all
}

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
			lines = append(lines, fmt.Sprintf("claim %s/%s waits: class %s, annotations %v", claim.Namespace, claim.Name,
				*claim.Spec.StorageClassName, claim.Annotations))
		}
	}
	for _, pod := range all[corev1.Pod](s.view.pods) {
		if slices.Contains(namespaces, pod.Namespace) && pod.Status.Phase != corev1.PodRunning && len(lines) < 2*most {
			lines = append(lines, fmt.Sprintf("pod %s/%s on node %q is %s: %+v", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status.Phase,
				pod.Status.Conditions))
		}
	}
	return lines
}
