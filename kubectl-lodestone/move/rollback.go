package move

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func rollbackCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o, whole := newOptions(), false
	command := &cobra.Command{
		Use:   "rollback pvc/NAME | volumemove/NAME",
		Short: "Move the data of a move that is done back to where it came from",
		Long: `Rollback moves the claims of a move that is done back to the cluster that they came
from, with all that was written since. While the move still keeps the copy there,
the data goes back into that, and only what differs is sent. From then on that copy is
no longer one to fall back on, and is removed if the way back is aborted; where its
driver can, a snapshot of it is taken first. The copy in use stays whole until the way
back is committed.

With --whole, or once the copy is gone, all data is sent, to the class that the claims
had there, if they may ask for that, else as new claims would get it.

A move that is not committed yet is ended with kubectl lodestone move abort.`,
		Example:           "  # The latest move of claim data that was committed\n  kubectl lodestone move rollback pvc/data -n shop",
		Args:              named.OneOf,
		ValidArgsFunction: named.Complete(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			return rollBack(cmd.Context(), flags, streams, o, whole, args, rankToGoBack, func(*v1alpha1.VolumeMove) error { return nil })
		},
	}
	rollbackFlags(command, o, &whole)
	return command
}

func rollbackFlags(command *cobra.Command, o *Options, whole *bool) {
	command.Flags().BoolVar(whole, "whole", false, "move all data, and leave the copy that was kept as it is until the way back is committed")
	o.copyFlags(command.Flags())
	o.Output.Add(command, "write the VolumeMove that moves back when it is done, also if it fails", cli.JSON, cli.YAML, cli.Name)
	completeVerify(command)
}

// rollBack moves the claims of a move, which the arguments name by rank and may is asked about, back to where they came from.
func rollBack(ctx context.Context, flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, o *Options, whole bool,
	args []string, by ranking, may func(*v1alpha1.VolumeMove) error) error {
	if err := o.check(); err != nil {
		return err
	}
	home, namespace, err := cli.Connect(flags)
	if err != nil {
		return err
	}
	chosen := named
	chosen.Choose = by.choose
	move, err := chosen.Find(ctx, home, namespace, args)
	if err != nil {
		return err
	}
	if err := may(move); err != nil {
		return err
	}
	if err := requireLiving(ctx, home, move); err != nil {
		return err
	}
	if o.Into, o.Cluster = keptBy(move, whole); o.Into == "" {
		if o.Cluster, o.Class, err = origin(move); err != nil {
			return err
		}
	}
	if o.Into == "" && !listsClass(ctx, home, namespace, move.Spec.Claims[0], o.Class) {
		if err := checkOtherCluster(move, o.Class); err != nil {
			return err
		}
		o.Class = ""
	}
	switch {
	case o.Into != "":
		fmt.Fprintf(streams.ErrOut, "what was written since is moved back into the copy that move %s kept, which is no longer one to fall "+
			"back on; the copy in use stays whole until that is done\n", move.Name)
	case move.Spec.Failover != nil:
		fmt.Fprintln(streams.ErrOut, "all data is moved back, to a new volume; the one that the claim had before the failover is kept")
	case move.Status.Phase == v1alpha1.MoveRetain:
		fmt.Fprintf(streams.ErrOut, "all data is moved back; the copy that move %s kept is from before it, and is removed after that\n",
			move.Name)
	}
	r := &runner{Options: o, home: home, streams: streams, namespace: namespace}
	return r.run(ctx, [][]string{move.Spec.Claims})
}

// keptBy returns the move that keeps the copy to go back into, and the cluster of that; none with whole, or if there is none.
func keptBy(move *v1alpha1.VolumeMove, whole bool) (into, cluster string) {
	if whole || move.Status.Phase != v1alpha1.MoveRetain || len(move.Status.Claims) == 0 || move.Status.Claims[0].Source == nil {
		return "", ""
	}
	if state, _ := outcomeOf(move); state != moved {
		return "", ""
	}
	return move.Name, move.Status.Claims[0].Source.Cluster
}

// origin returns where the data of a completed move came from.
func origin(move *v1alpha1.VolumeMove) (cluster, class string, err error) {
	if state, _ := outcomeOf(move); state != moved {
		if why := whyForbidden(move, v1alpha1.ActionAbort); why != "" { // it is over, or in Commit or Resume
			return "", "", cli.Refuse("move %s is not done (%s), so there is nothing to move back: kubectl lodestone move status -n %s shows "+
				"what there is", move.Name, phaseOf(move), move.Namespace)
		}
		return "", "", cli.Refuse("move %s is not done (%s), so there is nothing to move back: kubectl lodestone move abort %s -n %s ends it",
			move.Name, phaseOf(move), move.Name, move.Namespace)
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

// checkOtherCluster refuses a class that claims may not ask for, if the data is in the same cluster: nothing could be
// moved back then.
func checkOtherCluster(move *v1alpha1.VolumeMove, class string) error {
	for _, claim := range move.Status.Claims {
		if claim.Source.Cluster == claim.Target.Cluster {
			return cli.Refuse("claim %s came from class %s of the cluster where it still is, which its virtual class does not list: list it in "+
				"parameter %s, and roll back again; nothing was changed", claim.Name, class, keys.Classes)
		}
	}
	return nil
}
