// Package soak asks for many virtual claims at once, on all routes, while it kills
// all of Lodestone's programs at random, and then deletes most of them in the same
// way. In the end each claim must be bound, to one volume, and nothing may be left of
// those that are gone but what was to be kept.
package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

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
		return fmt.Sprintf("%d claims for %d, %d virtual volumes for %d, %d volumes stored", len(claims), len(bound), virtual, len(left), volumes),
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
	kubeconfig, err := s.bed.Tenant(ctx, nil)
	if err != nil {
		return err
	}
	if err := s.bed.Register(ctx, fabric.WestNode, kubeconfig); err != nil {
		return err
	}
	return s.bed.AwaitNode(ctx, fabric.WestNode, corev1.ConditionTrue)
}
