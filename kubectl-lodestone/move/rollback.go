package move

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func rollbackCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := newOptions()
	command := &cobra.Command{
		Use:   "rollback pvc/NAME | volumemove/NAME",
		Short: "Move the data of a move that is done back to where it came from",
		Long: `Rollback moves the claims of a move that is done back to the cluster that they came
from, with all that was written since; to the class that they had there, if claims may
ask for that, else as new claims would get it. The copy that is kept there is
from before the move; it is removed first, and all data travels back. The pod of a
ReadWriteOncePod claim stands still meanwhile if no snapshot of it can be copied; that
is known only once the copy is gone, so --offline must allow it.

A move that is not committed yet is ended with kubectl lodestone move abort.`,
		Example:           "  # The latest move of claim data that was committed\n  kubectl lodestone move rollback pvc/data -n shop",
		Args:              oneMove,
		ValidArgsFunction: completeMoves(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			home, namespace, err := cli.Connect(flags)
			if err != nil {
				return err
			}
			move, err := find(cmd.Context(), home, namespace, args)
			if err != nil {
				return err
			}
			if err := requireLiving(cmd.Context(), home, move); err != nil {
				return err
			}
			if o.Cluster, o.Class, err = origin(move); err != nil {
				return err
			}
			if !listsClass(cmd.Context(), home, namespace, move.Spec.Claims[0], o.Class) {
				if err := checkOtherCluster(move, o.Class); err != nil {
					return err
				}
				o.Class = ""
			}
			if err := checkOffline(cmd.Context(), home, move, o.Offline); err != nil {
				return err
			}
			if err := awaitFinalized(cmd.Context(), home, streams, move); err != nil {
				return err
			}
			r := &runner{Options: o, home: home, streams: streams, namespace: namespace}
			return r.run(cmd.Context(), [][]string{move.Spec.Claims})
		},
	}
	o.copyFlags(command.Flags())
	o.Output.Add(command, "write the VolumeMove that moves back when it is done, also if it fails", cli.JSON, cli.YAML, cli.Name)
	completeVerify(command)
	return command
}

// origin returns where the data of a completed move came from.
func origin(move *v1alpha1.VolumeMove) (cluster, class string, err error) {
	if state, _ := outcomeOf(move); state != moved {
		return "", "", cli.Refuse("move %s is not done (%s), so there is nothing to move back: kubectl lodestone move abort ends one that is "+
			"not committed", move.Name, move.Status.Phase)
	}
	for _, claim := range move.Status.Claims {
		switch {
		case claim.Source == nil || claim.Target == nil:
			return "", "", cli.Refuse("move %s does not say where claim %s came from: move it with kubectl lodestone move", move.Name, claim.Name)
		case cluster != "" && (cluster != claim.Source.Cluster || class != claim.Source.Class):
			return "", "", cli.Refuse("the claims of move %s came from different places, which one move cannot go back to: stop their pods, and "+
				"move each with kubectl lodestone move", move.Name)
		case claim.Source.Cluster == keys.Home && claim.Target.Cluster == keys.Home && claim.Source.Class == claim.Target.Class:
			return "", "", cli.Refuse("move %s went from one node of home to another: name the node to go back to with kubectl lodestone move %s "+
				"--target-node", move.Name, claim.Name)
		}
		cluster, class = claim.Source.Cluster, claim.Source.Class
	}
	return cluster, class, nil
}

// listsClass reports whether a claim may ask for a real class, that is, whether its virtual class
// lists it. If a class cannot be read the answer is no.
func listsClass(ctx context.Context, home *cli.Cluster, namespace, name, class string) bool {
	claim, err := home.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || claim.Spec.StorageClassName == nil {
		return false
	}
	virtual, err := home.Client.StorageV1().StorageClasses().Get(ctx, *claim.Spec.StorageClassName, metav1.GetOptions{})
	if err != nil {
		return false
	}
	for listed := range strings.SplitSeq(virtual.Parameters[keys.Classes], ",") {
		if strings.TrimSpace(listed) == class {
			return true
		}
	}
	return false
}

// checkOtherCluster refuses to remove the retained copy if its class is one that claims may not ask
// for, and the data is in the same cluster: nothing could be moved back then.
func checkOtherCluster(move *v1alpha1.VolumeMove, class string) error {
	for _, claim := range move.Status.Claims {
		if claim.Source.Cluster == claim.Target.Cluster {
			return cli.Refuse("claim %s came from class %s of the cluster where it still is, which its virtual class does not list: list it in "+
				"parameter %s, and roll back again; nothing was changed", claim.Name, class, keys.Classes)
		}
	}
	return nil
}

// checkOffline refuses to remove the retained copy if the move back would be refused because it
// needs pods to be stopped.
func checkOffline(ctx context.Context, home *cli.Cluster, move *v1alpha1.VolumeMove, allowed bool) error {
	if allowed {
		return nil
	}
	for _, name := range move.Spec.Claims {
		claim, err := getClaim(ctx, home, move.Namespace, name)
		if err != nil {
			return err
		}
		if slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			return cli.Refuse("claim %s is ReadWriteOncePod, so its pod may have to stand still while all of it is copied: allow that with "+
				"--offline; nothing was changed", name)
		}
	}
	return nil
}

// awaitFinalized completes a move that is done: only then its claims can be moved again.
func awaitFinalized(ctx context.Context, home *cli.Cluster, streams genericiooptions.IOStreams, move *v1alpha1.VolumeMove) error {
	if move.Status.Phase == v1alpha1.MoveRetain {
		fmt.Fprintf(streams.ErrOut, "the copy that move %s kept is from before it, and is removed; then all data is moved back\n", move.Name)
		if _, err := setAction(ctx, home, move, v1alpha1.ActionFinalize); err != nil {
			return err
		}
	}
	shown := newScreen(streams.ErrOut)
	defer shown.done()
	for move.Status.Phase != v1alpha1.MoveDone {
		shown.show(move)
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing is moved back yet: give the same command again")
		case <-time.After(pollInterval):
		}
		seen, err := poll(ctx, shown, getter(home, move))
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil && seen.DeletionTimestamp != nil && isDying(ctx, home, move.Namespace):
			return ended(move)
		case err == nil:
			move = seen
		case ctx.Err() == nil:
			return fmt.Errorf("%w; nothing is moved back yet: give the same command again",
				home.Explain("get VolumeMove "+move.Namespace+"/"+move.Name, err))
		}
	}
	return nil
}
