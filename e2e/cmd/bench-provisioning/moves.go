package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	// tenant is the namespace whose volumes move.
	tenant = "tenant"
	// besideBudget is how much slower claims may be beside moves.
	besideBudget = 1.10
	// alongBurst is how many claims are created at once beside moves, alongBursts how many times in each
	// half of a round; alongSingles is how many are created there one after the other.
	alongBurst, alongBursts, alongSingles = 100, 2, 20
)

// besideMoves measures claims beside many moves of one tenant, and without them. The movers are
// played: none copies, so the moves that have begun wait for them as long as they may. The two halves
// of a round are compared with each other; every second round begins with the moves, so that a machine
// that gets slower or faster counts for both.
func (b *bench) besideMoves(ctx context.Context, n, rounds int) ([]measure.Result, error) {
	if err := b.bed.Open(ctx, tenant); err != nil {
		return nil, err
	}
	access, err := clients.NewVolumeMoveClient(b.bed.Home.AdminConfig())
	if err != nil {
		return nil, err
	}
	moves := access.In(tenant)
	b.shared = true
	if err := b.tenantClaims(ctx, n); err != nil {
		return nil, err
	}
	if _, _, err := b.burst(ctx, local, alongBurst); err != nil { // only warms up
		return nil, err
	}
	// The medians of each round: without moves, and with them.
	var one, all [2][]time.Duration
	for round := range rounds {
		begun, waiting := 0, 0
		for half := range 2 {
			with := (half + round) % 2
			if with == 1 {
				if err := startMoves(ctx, moves, n); err != nil {
					return nil, err
				}
			}
			single, burst, err := b.along(ctx)
			if err != nil {
				return nil, err
			}
			one[with], all[with] = append(one[with], single), append(all[with], burst)
			if with == 1 {
				if begun, waiting, err = endMoves(ctx, moves); err != nil {
					return nil, err
				}
			}
		}
		say("round %d of %d: one claim %v, beside %d moves %v; %d claims at once %v, beside them %v; %d moves had begun, %d were told where "+
			"they stand", round+1, rounds, one[0][round].Round(100*time.Microsecond), n, one[1][round].Round(100*time.Microsecond), alongBurst,
			all[0][round].Round(10*time.Millisecond), all[1][round].Round(10*time.Millisecond), begun, waiting)
		if begun == 0 {
			return nil, fmt.Errorf("no move has begun: nothing was measured")
		}
	}
	return []measure.Result{
		measure.AtMost(fmt.Sprintf("one claim beside %d moves of a tenant", n), measure.MedianRatio(one[1], one[0]), besideBudget,
			"x without moves"),
		measure.AtMost(fmt.Sprintf("%d claims at once beside %d moves of a tenant", alongBurst, n), measure.MedianRatio(all[1], all[0]),
			besideBudget, "x without moves"),
	}, nil
}

// along measures claims in half a round: one after the other, and many at once.
func (b *bench) along(ctx context.Context) (single, burst time.Duration, err error) {
	var one, all []time.Duration
	for range alongSingles {
		took, _, err := b.burst(ctx, local, 1)
		if err != nil {
			return 0, 0, err
		}
		one = append(one, took...)
	}
	for range alongBursts {
		_, took, err := b.burst(ctx, local, alongBurst)
		if err != nil {
			return 0, 0, err
		}
		all = append(all, took)
	}
	return measure.Median(one), measure.Median(all), nil
}

// tenantClaims makes the claims of the tenant, and waits until they are bound.
func (b *bench) tenantClaims(ctx context.Context, n int) error {
	claims := b.client.CoreV1().PersistentVolumeClaims(tenant)
	for i := range n {
		claim := fabric.NewClaim(tenant, fmt.Sprintf("data-%d", i), local.class)
		claim.Annotations = map[string]string{keys.SelectedNode: local.node}
		if _, err := claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create claim of the tenant: %w", err)
		}
	}
	err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		list, err := claims.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("list claims of the tenant: %w", err)
		}
		return !slices.ContainsFunc(list.Items, func(claim corev1.PersistentVolumeClaim) bool {
			return claim.Status.Phase != corev1.ClaimBound
		}), nil
	})
	if err != nil {
		return fmt.Errorf("wait for the claims of the tenant: %w", err)
	}
	return nil
}

// startMoves makes a move of each claim of the tenant to the other node, and waits until some have begun.
func startMoves(ctx context.Context, moves *clients.VolumeMoves, n int) error {
	for i := range n {
		name := fmt.Sprintf("data-%d", i)
		_, err := moves.Create(ctx, &v1alpha1.VolumeMove{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.VolumeMoveSpec{Claims: []string{name}, Target: v1alpha1.MoveTarget{Node: "home-2"}},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create VolumeMove: %w", err)
		}
	}
	return awaitMoves(ctx, moves, "begun", func(list []v1alpha1.VolumeMove) bool {
		return slices.ContainsFunc(list, func(move v1alpha1.VolumeMove) bool { return move.Status.Phase == v1alpha1.MoveProvision })
	})
}

// endMoves deletes all moves, and waits until they are gone. It returns how many had begun, and how many waited.
func endMoves(ctx context.Context, moves *clients.VolumeMoves) (begun, waiting int, err error) {
	list, err := moves.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, fmt.Errorf("list VolumeMoves: %w", err)
	}
	for i := range list.Items {
		switch status := list.Items[i].Status; {
		case status.Phase == v1alpha1.MoveFailed:
			return 0, 0, fmt.Errorf("VolumeMove %s has failed: %s", list.Items[i].Name, status.Message)
		case status.Phase != "":
			begun++
		case status.QueuePosition > 0:
			waiting++
		}
	}
	if err := moves.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return 0, 0, fmt.Errorf("delete VolumeMoves: %w", err)
	}
	return begun, waiting, awaitMoves(ctx, moves, "gone", func(list []v1alpha1.VolumeMove) bool { return len(list) == 0 })
}

func awaitMoves(ctx context.Context, moves *clients.VolumeMoves, what string, done func([]v1alpha1.VolumeMove) bool) error {
	err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		list, err := moves.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("list VolumeMoves: %w", err)
		}
		return done(list.Items), nil
	})
	if err != nil {
		return fmt.Errorf("wait until the moves are %s: %w", what, err)
	}
	return nil
}
