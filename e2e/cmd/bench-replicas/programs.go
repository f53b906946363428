package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// session runs the programs of a tool for one copy, and counts what they use.
type session struct {
	ctx     context.Context
	stop    context.CancelFunc
	began   time.Time
	servers []*exec.Cmd
	wires   []*harness.Wire
	used    time.Duration
}

func begin(ctx context.Context) *session {
	ctx, stop := context.WithCancel(ctx)
	return &session{ctx: ctx, stop: stop, began: time.Now()}
}

// command is one of a program's that ends with the session.
func (s *session) command(env []string, program string, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.ctx, program, arguments...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// run runs a program to its end.
func (s *session) run(env []string, dir, program string, arguments ...string) error {
	cmd := s.command(env, program, arguments...)
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s: %w: %.500s", program, err, output)
	}
	s.used += used(cmd)
	return nil
}

// serve starts a program that listens at an address, and waits until it does.
func (s *session) serve(address string, env []string, program string, arguments ...string) error {
	cmd := s.command(env, program, arguments...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	s.servers = append(s.servers, cmd)
	for s.ctx.Err() == nil && time.Since(s.began) < time.Minute {
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			return conn.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%s does not listen", program)
}

// counted returns the address of a wire to an address.
func (s *session) counted(address string) (string, error) {
	wire, err := harness.NewWire(s.ctx, address, "")
	if err != nil {
		return "", fmt.Errorf("make a wire: %w", err)
	}
	s.wires = append(s.wires, wire)
	return wire.Address(), nil
}

// end ends all programs and returns what the session has cost.
func (s *session) end(err error) (cost, error) {
	c := cost{took: time.Since(s.began)}
	s.stop()
	for _, server := range s.servers {
		_ = server.Wait()
		s.used += used(server)
	}
	for _, wire := range s.wires {
		wire.Close()
		c.bytes += wire.Bytes()
	}
	c.processor = s.used
	return c, err
}

// used is the processor time of a program that has ended, and of those that it has waited for.
func used(cmd *exec.Cmd) time.Duration {
	if cmd.ProcessState == nil {
		return 0
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// free returns addresses at which nobody listens. Each is held until all are found.
func free(n int) ([]string, error) {
	if n == 0 {
		return nil, nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free address: %w", err)
	}
	defer listener.Close()
	more, err := free(n - 1)
	return append(more, listener.Addr().String()), err
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// keys writes certificates of both ends, and returns the folders of them.
func keys(folder string) (client, server string, err error) {
	issued, err := moverapi.IssueKeys("bench", time.Now(), 24*time.Hour)
	if err != nil {
		return "", "", err
	}
	for _, role := range []moverapi.Role{moverapi.Sender, moverapi.Receiver} {
		at := filepath.Join(folder, "keys", string(role))
		err = errors.Join(err, os.MkdirAll(at, 0o700))
		for name, content := range issued[role] {
			err = errors.Join(err, os.WriteFile(filepath.Join(at, name), content, 0o600))
		}
	}
	return filepath.Join(folder, "keys", string(moverapi.Sender)), filepath.Join(folder, "keys", string(moverapi.Receiver)), err
}

// write writes a file of settings.
func write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}

// rsync copies to a daemon, over stunnel with certificates on both sides.
func (b *bench) rsync(ctx context.Context, source, folder string) (cost, error) {
	target := filepath.Join(folder, "copy")
	client, server, err := keys(folder)
	if err != nil {
		return cost{}, err
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return cost{}, fmt.Errorf("make a folder for a copy: %w", err)
	}
	at, err := free(3)
	if err != nil {
		return cost{}, err
	}
	s := begin(ctx)
	return s.end(func() error {
		wire, err := s.counted(at[1])
		if err != nil {
			return err
		}
		daemon := filepath.Join(folder, "rsyncd.conf")
		stunnel := func(end, keys, accept, connect, is string) (string, error) {
			path := filepath.Join(folder, end+".conf")
			return path, write(path, fmt.Sprintf("foreground = yes\npid =\nsyslog = no\ndebug = 3\n[rsync]\nclient = %s\naccept = %s\n"+
				"connect = %s\ncert = %[4]s/tls.crt\nkey = %[4]s/tls.key\nCAfile = %[4]s/ca.crt\nverifyChain = yes\nsslVersion = TLSv1.3\n",
				is, accept, connect, keys))
		}
		there, err := stunnel("server", server, at[1], at[0], "no")
		if err != nil {
			return err
		}
		here, err := stunnel("client", client, at[2], wire, "yes")
		if err != nil {
			return err
		}
		if err := write(daemon, "uid = 0\ngid = 0\nuse chroot = no\n[volume]\npath = "+target+"\nread only = no\n"); err != nil {
			return err
		}
		return inTurn(
			func() error {
				return s.serve(at[0], nil, "rsync", "--daemon", "--no-detach", "--address=127.0.0.1", "--port="+portOf(at[0]), "--config="+daemon)
			},
			func() error { return s.serve(at[1], nil, "stunnel4", there) },
			func() error { return s.serve(at[2], nil, "stunnel4", here) },
			func() error {
				return s.run(nil, source, "rsync", "-aHAXS", "--numeric-ids", "--delete", "./", "rsync://"+at[2]+"/volume/")
			})
	}())
}

// inTurn does one after another until one fails.
func inTurn(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// restic backs up to a repository that rclone serves; what it keeps is that repository, and no copy that could be used as it is.
func (b *bench) restic(ctx context.Context, source, folder string) (cost, error) {
	repository := filepath.Join(folder, "repository")
	at, err := free(1)
	if err != nil {
		return cost{}, err
	}
	s := begin(ctx)
	return s.end(func() error {
		wire, err := s.counted(at[0])
		if err != nil {
			return err
		}
		env := []string{"RESTIC_PASSWORD=x", "RESTIC_CACHE_DIR=" + filepath.Join(folder, "cache"), "RESTIC_REPOSITORY=rest:http://" + wire + "/"}
		_, missing := os.Stat(repository)
		return inTurn(
			func() error {
				return s.serve(at[0], []string{"RCLONE_CONFIG="}, "rclone", "serve", "restic", "--addr="+at[0], repository)
			},
			func() error {
				if missing == nil {
					return nil
				}
				return s.run(env, source, "restic", "-q", "init")
			},
			func() error { return s.run(env, source, "restic", "-q", "backup", ".") })
	}())
}

// rclone copies to an SFTP server of its own. By default it has that compute a hash of each file, by a command of its own each, which takes
// hours for many files.
func (b *bench) rclone(ctx context.Context, source, folder string) (cost, error) {
	target := filepath.Join(folder, "copy")
	if err := os.MkdirAll(target, 0o755); err != nil {
		return cost{}, fmt.Errorf("make a folder for a copy: %w", err)
	}
	at, err := free(1)
	if err != nil {
		return cost{}, err
	}
	hidden, err := exec.CommandContext(ctx, "rclone", "obscure", "x").Output()
	if err != nil {
		return cost{}, fmt.Errorf("run rclone: %w", err)
	}
	env := []string{"RCLONE_CONFIG=", "XDG_CACHE_HOME=" + filepath.Join(folder, "cache")}
	s := begin(ctx)
	return s.end(func() error {
		wire, err := s.counted(at[0])
		if err != nil {
			return err
		}
		return inTurn(
			func() error {
				return s.serve(at[0], env, "rclone", "serve", "sftp", "--addr="+at[0], "--user=u", "--pass=x", target)
			},
			func() error {
				return s.run(env, source, "rclone", "sync", "--links", ".", fmt.Sprintf(
					":sftp,host=127.0.0.1,port=%s,user=u,pass='%s',disable_hashcheck=true:", portOf(wire), strings.TrimSpace(string(hidden))))
			})
	}())
}

// borg makes an archive in a repository that borg serves to it; what passes between the two is counted by this program.
func (b *bench) borg(ctx context.Context, source, folder string) (cost, error) {
	self, err := os.Executable()
	if err != nil {
		return cost{}, fmt.Errorf("find this program: %w", err)
	}
	count, repository := filepath.Join(folder, "bytes"), "ssh://there"+filepath.Join(folder, "repository")
	env := []string{"BORG_RSH=" + self + " " + pipeVerb + " " + count, "BORG_PASSPHRASE=x", "BORG_BASE_DIR=" + folder,
		"BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes"}
	if err := write(count, "0"); err != nil {
		return cost{}, err
	}
	_, missing := os.Stat(filepath.Join(folder, "repository"))
	s := begin(ctx)
	c, err := s.end(func() error {
		if missing != nil {
			if err := s.run(env, source, "borg", "init", "--encryption=repokey-blake2", repository); err != nil {
				return err
			}
		}
		return s.run(env, source, "borg", "create", repository+"::{now:%s%f}", ".")
	}())
	if err != nil {
		return c, err
	}
	text, err := os.ReadFile(count)
	if err == nil {
		c.bytes, err = strconv.ParseInt(string(text), 10, 64)
	}
	return c, err //nolint:wrapcheck // it names the file
}

// pipeVerb has this program run the command that it is given behind a host's name, as ssh does, and count what passes.
const pipeVerb = "pipe"

// pipe runs a command, and adds the bytes of its input and output to the number in a file.
func pipe(count string, arguments []string) error {
	if len(arguments) < 2 {
		return errors.New("there is no command to run")
	}
	cmd := exec.Command(arguments[1], arguments[2:]...)
	var passed atomic.Int64
	input, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("run %s: %w", arguments[1], err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("run %s: %w", arguments[1], err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run %s: %w", arguments[1], err)
	}
	go func() {
		_, _ = io.Copy(input, counter{os.Stdin, &passed})
		_ = input.Close()
	}()
	_, copying := io.Copy(os.Stdout, counter{output, &passed})
	err = errors.Join(copying, cmd.Wait())
	before, _ := os.ReadFile(count)
	sum, _ := strconv.ParseInt(string(before), 10, 64)
	return errors.Join(err, write(count, strconv.FormatInt(sum+passed.Load(), 10)))
}

// counter counts what is read.
type counter struct {
	io.Reader
	passed *atomic.Int64
}

func (c counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.passed.Add(int64(n))
	return n, err //nolint:wrapcheck // io.EOF is told by its value
}

// ours makes a point as a VolumeReplica does whose source has rested for long enough: movers that know of no earlier point compare the
// fingerprints of both ends with those of the point before. Where they differ, they copy, and compare both ends by hashes of all of it.
func (b *bench) ours(ctx context.Context, source, folder string) (cost, error) {
	target, movers := filepath.Join(folder, "head"), filepath.Join(folder, "movers")
	if err := errors.Join(os.RemoveAll(movers), os.MkdirAll(movers, 0o755), os.MkdirAll(target, 0o755)); err != nil {
		return cost{}, fmt.Errorf("make folders for the movers: %w", err)
	}
	began := time.Now()
	point, err := harness.Start(ctx, harness.Setup{Program: b.mover, Folder: movers, Source: source, Target: target})
	if err != nil {
		return cost{}, fmt.Errorf("start movers: %w", err)
	}
	defer point.Stop()
	var expect json.RawMessage
	known := b.known[folder]
	for _, kind := range []moverapi.Kind{moverapi.Fingerprint, moverapi.Prepare, moverapi.Final, moverapi.Verify} {
		if kind == moverapi.Fingerprint && known == (moverapi.Fingerprints{}) {
			continue
		}
		status, err := point.Do(ctx, moverapi.Task{ID: string(kind), Kind: kind, Expect: expect, Fingerprints: true})
		if err != nil {
			return cost{}, fmt.Errorf("%w\n%s", err, point.Log())
		}
		if status.Fingerprints != nil && *status.Fingerprints == known {
			break
		}
		switch {
		case status.Prepared != nil:
			expect = status.Prepared.Source
		case status.Verified != nil && !status.Verified.Equal:
			return cost{}, errors.New("both ends differ")
		case status.Verified != nil:
			b.known[folder] = *status.Verified.Fingerprints
		}
	}
	took := time.Since(began)
	point.Stop()
	return cost{bytes: point.Wire.Bytes(), processor: point.Used(), took: took}, nil
}
