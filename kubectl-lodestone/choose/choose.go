// Package choose is the command choose: an administrator says which real claim a claim is to have of which newer data exists than what
// its volume stands for. Judge decides what a choice is and is pure.
package choose

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/move"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var uid string
	var yes bool
	command := &cobra.Command{
		Use:   "choose pvc/NAME [--uid UID]",
		Short: "Choose which data a claim has that was moved before home was restored",
		Long: `Choose is for a claim whose volume is not the newest of its data: home was restored
from a backup from before a move. New pods of such a claim wait, and the claim says so
(event and condition NewerBacking). With --uid you choose the real claim that it
gets, by its UID; without it both are shown.

The newer one: pods that use the claim are stopped, and the claim gets it as it is;
nothing is copied. The older one: the claim keeps what it has. In both cases the other
real claim is kept with its data, for you to remove.

It takes the right to unlock volumemoves.`,
		Example: `  # Which are there?
  kubectl lodestone choose pvc/data -n shop

  # That one
  kubectl lodestone choose pvc/data -n shop --uid 7d0bd4f5-5f0c-4c1e-9d35-0d7f3f6f2c55`,
		Args:              cli.TakesOne(cli.Claim),
		ValidArgsFunction: cli.CompleteReferences(flags, true, []cli.Kind{cli.Claim}, cli.Claim),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := cli.OneReference(cmd, args, cli.Claim)
			if err != nil {
				return err
			}
			home, namespace, err := cli.Connect(flags)
			if err != nil {
				return err
			}
			return choose(cmd.Context(), home, streams, types.NamespacedName{Namespace: namespace, Name: named.Name}, types.UID(uid), yes)
		},
	}
	command.Flags().StringVar(&uid, "uid", "", "UID of the real claim that the claim gets")
	command.Flags().BoolVar(&yes, "yes", false, "do not ask")
	_ = command.RegisterFlagCompletionFunc("uid", func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		return cli.Complete(flags, func(ctx context.Context, home *cli.Cluster, namespace string) ([]string, error) {
			named, err := cli.OneReference(cmd, args, cli.Claim)
			if err != nil {
				return nil, err
			}
			return uids(ctx, home, namespace, named.Name)
		})(cmd, args, typed)
	})
	return command
}

// uids returns the UIDs of the real claims that a claim can have.
func uids(ctx context.Context, home *cli.Cluster, namespace, name string) (all []string, err error) {
	claim, err := home.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, home.Explain("get claim "+namespace+"/"+name, err)
	}
	if newer, err := backing.ParseRef(claim.Annotations[keys.Newer]); err == nil {
		all = append(all, cobra.CompletionWithDesc(string(newer.UID), "the newer one, in cluster "+newer.Cluster))
	}
	volume, err := home.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return all, home.Explain("get volume "+claim.Spec.VolumeName, err)
	}
	if older, err := backing.RefOf(volume); err == nil {
		all = append(all, cobra.CompletionWithDesc(string(older.UID), "the older one, in cluster "+older.Cluster))
	}
	return all, nil
}

// Choice is what the claim is to have and what is kept beside it.
type Choice struct {
	Has, Other backing.Ref
	// Newer says that Has is the newer one.
	Newer bool
}

// Judge returns the choice that a UID stands for, or why it stands for none. volume is the volume of the claim. It is pure.
func Judge(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, uid types.UID) (Choice, error) {
	if claim.Labels[keys.Moving] != keys.MovingNow || claim.Annotations[keys.Move] == "" {
		return Choice{}, cli.Refuse("claim %s/%s is not locked, so there is nothing to choose: kubectl lodestone why pvc %s -n %s says how it is",
			claim.Namespace, claim.Name, claim.Name, claim.Namespace)
	}
	older, err := backing.RefOf(volume)
	if err != nil {
		return Choice{}, cli.Refuse("volume %s of claim %s/%s does not say which real claim it stands for: restore its annotation %s",
			volume.Name, claim.Namespace, claim.Name, keys.Backing)
	}
	newer, err := backing.ParseRef(claim.Annotations[keys.Newer])
	known := err == nil
	there := fmt.Sprintf("older: real claim %s in cluster %s, --uid %s", older.Key(), older.Cluster, older.UID)
	if known {
		there = fmt.Sprintf("newer: real claim %s in cluster %s, --uid %s; ", newer.Key(), newer.Cluster, newer.UID) + there
	}
	switch {
	case uid == older.UID:
		return Choice{Has: older, Other: newer}, nil
	case known && uid == newer.UID:
		return Choice{Has: newer, Other: older, Newer: true}, nil
	case uid == "":
		return Choice{}, cli.Misuse("say with --uid which real claim %s/%s gets: %s", claim.Namespace, claim.Name, there)
	}
	return Choice{}, cli.Refuse("claim %s/%s cannot have a real claim with UID %s: give one of these with --uid: %s",
		claim.Namespace, claim.Name, uid, there)
}

func choose(ctx context.Context, home *cli.Cluster, streams genericiooptions.IOStreams, name types.NamespacedName, uid types.UID,
	yes bool) error {
	short, cancel := cli.Within(ctx, time.Minute)
	defer cancel()
	claim, err := home.Client.CoreV1().PersistentVolumeClaims(name.Namespace).Get(short, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return home.Missing(ctx, cli.Claim, name.Namespace, name.Name)
	case err != nil:
		return home.Explain("get claim "+name.String(), err)
	case claim.Spec.VolumeName == "":
		return cli.Refuse("claim %s has no volume, so there is nothing to choose: kubectl lodestone why pvc/%s -n %s says what it waits for",
			name, name.Name, name.Namespace)
	}
	volume, err := home.Client.CoreV1().PersistentVolumes().Get(short, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return home.Explain("get volume "+claim.Spec.VolumeName, err)
	}
	choice, err := Judge(claim, volume, uid)
	if err != nil {
		return err
	}
	fmt.Fprintf(streams.ErrOut, "Claim %s gets real claim %s in cluster %s.\n", name, choice.Has.Key(), choice.Has.Cluster)
	if choice.Newer {
		fmt.Fprintln(streams.ErrOut, "Pods that use it are stopped. What was written to the older one since home was restored is not in it.")
	} else {
		fmt.Fprintln(streams.ErrOut, "What was written to the newer one is not in it.")
	}
	if choice.Other.UID != "" {
		fmt.Fprintf(streams.ErrOut, "Real claim %s in cluster %s (UID %s) is kept: remove it by hand if nothing in it is needed.\n",
			choice.Other.Key(), choice.Other.Cluster, choice.Other.UID)
	}
	if err := cli.Ask(short, streams.In, streams.ErrOut, yes, name.Name); err != nil {
		return err
	}
	if choice.Newer {
		return move.Adopt(ctx, home, streams, name, choice.Has)
	}
	if err := keep(short, home, claim, choice.Has); err != nil {
		return err
	}
	_, err = fmt.Fprintf(streams.Out, "persistentvolumeclaim/%s keeps what it has: its pods start now\n", name.Name)
	return err
}

// keep says on a claim that it is to be used as it is, if it has not changed since it was shown.
func keep(ctx context.Context, home *cli.Cluster, claim *corev1.PersistentVolumeClaim, has backing.Ref) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion, "annotations": map[string]any{keys.Unlock: has.UID}}})
	if err != nil {
		return fmt.Errorf("write the change of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	_, err = home.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "kubectl-lodestone"})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("claim %s/%s has changed since it was looked at: run the same command again (%w)", claim.Namespace, claim.Name, err)
	}
	return home.Explain("change claim "+claim.Namespace+"/"+claim.Name, err)
}
