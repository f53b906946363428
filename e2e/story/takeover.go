package story

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/instant"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const batchSize = 6

// takeOver kills the leading provisioner while it works.
func (s *story) takeOver() step {
	return step{
		title: "The leading provisioner is killed in the middle of its work",
		words: "Home's real class is made to take 2 s for a volume. Six new claims get their twins; before these are bound the leader is killed with kill -9. West is still away.",
		acts: func() []act {
			var killed *testbed.Program
			var pods []string
			for i := range batchSize {
				pods = append(pods, "batch-"+strconv.Itoa(i))
			}
			return []act{
				func(context.Context) error {
					s.fabric.HomeStorage.SetClass(fabric.HomeWait, instant.Behavior{Delay: 2 * time.Second})
					return nil
				},
				s.apply(manifest("batch")),
				s.until("the six claims have their twins, none is bound", s.batchTwins(corev1.ClaimPending)),
				func(ctx context.Context) (err error) {
					if killed, err = s.leader(); err != nil {
						return err
					}
					return s.do(fmt.Sprintf("$ kill -9 %d   # %s", killed.Pid(), killed.Name()), func(context.Context) error {
						killed.Kill()
						s.provisioners = slices.DeleteFunc(s.provisioners, func(p *testbed.Program) bool { return p == killed })
						return nil
					})(ctx)
				},
				s.until("the other provisioner leads", func(context.Context) error {
					leader, err := s.leader()
					if err == nil {
						s.console.note(fmt.Sprintf("%s leads (process %d).", leader.Name(), leader.Pid()))
					}
					return err
				}),
				s.until("the six pods run at home", s.runIn(home, "shop", pods...)),
				s.until("each claim has the one twin that it had, now bound, and no second volume was made", all(s.batchTwins(corev1.ClaimBound), s.allIn(home, pods...), s.balanced(home))),
				s.kubectl(home, "get", "lease", "lodestone-provisioner", "-n", fabric.System, "-o", "custom-columns=LEASE:.metadata.name,HOLDER:.spec.holderIdentity,TRANSITIONS:.spec.leaseTransitions"),
				func(context.Context) error {
					s.fabric.HomeStorage.ResetClass(fabric.HomeWait)
					return nil
				},
				s.say("A third replica takes the place of the killed one, as its Deployment would have it."),
				s.addProvisioner("provisioner-c"),
			}
		},
	}
}

// batchTwins checks that each claim of the batch has one twin, in a phase.
func (s *story) batchTwins(phase corev1.PersistentVolumeClaimPhase) probe {
	return func(ctx context.Context) error {
		client := s.fabric.Home.Client().CoreV1()
		for i := range batchSize {
			claim, err := client.PersistentVolumeClaims("shop").Get(ctx, claimOf("batch-"+strconv.Itoa(i)), metav1.GetOptions{})
			if err != nil {
				return err
			}
			twins, err := client.PersistentVolumeClaims("").List(ctx, metav1.ListOptions{LabelSelector: keys.ClaimUID + "=" + string(claim.UID)})
			if err != nil {
				return err
			}
			if err := counted("twins of claim "+claim.Name, len(twins.Items), 1); err != nil {
				return err
			}
			if have := twins.Items[0].Status.Phase; have != phase {
				return fmt.Errorf("the twin of claim %s is %s", claim.Name, have)
			}
		}
		return nil
	}
}
