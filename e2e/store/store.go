// Package store is an object store for tests: restic's own REST server on loopback, with
// TLS and a password, and the restic that movers use with it. Both are built from Go
// modules: that of restic is the one of the mover's image.
package store

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // what htpasswd files of tests have
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/built"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// Programs are the two programs.
type Programs struct {
	// Restic is the directory of restic, Server the program rest-server.
	Restic, Server string
}

// Build returns the programs: from the user's cache, or built, which takes a few minutes
// once and is told to out.
func Build(ctx context.Context, out io.Writer) (p Programs, err error) {
	if p.Restic, err = built.Restic.Build(ctx, out); err != nil {
		return p, err
	}
	server, err := built.RestServer.Build(ctx, out)
	p.Server = filepath.Join(server, "rest-server")
	return p, err
}

// First has movers that this process starts find this restic before any other.
func (p Programs) First() error {
	return os.Setenv("PATH", p.Restic+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// Server is a store that runs. User and Password let in.
type Server struct {
	Address, User, Password string

	program, folder string
	options         []string
	authority       []byte
	running         *exec.Cmd
	output          bytes.Buffer
}

// Start starts a store that keeps everything in a folder.
func Start(ctx context.Context, program, folder string) (*Server, error) {
	s := &Server{User: "mover", Password: rand.Text(), program: program, folder: folder}
	if err := s.prepare(); err != nil {
		return nil, fmt.Errorf("prepare the object store: %w", err)
	}
	s.options = []string{"--tls", "--tls-cert=" + s.path("crt"), "--tls-key=" + s.path("key"), "--htpasswd-file=" + s.path("users")}
	return s, s.start(ctx)
}

// StartPlain starts a store without TLS that lets everybody in: the least work for a
// yardstick. It has no Secret.
func StartPlain(ctx context.Context, program, folder string) (*Server, error) {
	s := &Server{program: program, folder: folder, options: []string{"--no-auth"}}
	return s, s.start(ctx)
}

func (s *Server) start(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find an address for the object store: %w", err)
	}
	s.Address = listener.Addr().String()
	if err := listener.Close(); err != nil {
		return err
	}
	return s.Run(ctx)
}

func (s *Server) path(name string) string { return filepath.Join(s.folder, name) }

// prepare writes the store's keys and its user.
func (s *Server) prepare() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "object store"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign |
			x509.KeyUsageDigitalSignature,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	s.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	sum := sha1.Sum([]byte(s.Password)) //nolint:gosec // see above
	return errors.Join(
		os.MkdirAll(s.path("data"), 0o700),
		os.WriteFile(s.path("crt"), s.authority, 0o600),
		os.WriteFile(s.path("key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600),
		os.WriteFile(s.path("users"), []byte(s.User+":{SHA}"+base64.StdEncoding.EncodeToString(sum[:])+"\n"), 0o600),
	)
}

// Run starts the store again after Stop, and returns when it answers.
func (s *Server) Run(ctx context.Context) error {
	s.output.Reset()
	s.running = exec.CommandContext(context.WithoutCancel(ctx), s.program,
		append([]string{"--path=" + s.path("data"), "--listen=" + s.Address}, s.options...)...)
	s.running.Stdout, s.running.Stderr = &s.output, &s.output
	s.running.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.running.Start(); err != nil {
		return fmt.Errorf("start the object store: %w", err)
	}
	for range 400 {
		var dialer net.Dialer
		if conn, err := dialer.DialContext(ctx, "tcp", s.Address); err == nil {
			return conn.Close()
		}
		select {
		case <-time.After(25 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.Stop()
	return fmt.Errorf("the object store does not answer: %s", s.output.String())
}

// Stop kills the store; what it keeps stays.
func (s *Server) Stop() {
	if s.running != nil {
		_ = s.running.Process.Kill()
		_ = s.running.Wait()
		s.running = nil
	}
}

// Secret is what an administrator's Secret says of the store.
func (s *Server) Secret() map[string][]byte {
	return map[string][]byte{
		moverapi.StoreURLKey: []byte("rest:https://" + s.Address + "/"), moverapi.StoreAuthorityKey: s.authority,
		"RESTIC_REST_USERNAME": []byte(s.User), "RESTIC_REST_PASSWORD": []byte(s.Password),
	}
}

// Files are the files that are kept, by their paths, and how many bytes they have.
func (s *Server) Files() (map[string]int64, error) {
	files := map[string]int64{}
	root := s.path("data")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || entry.IsDir() {
			return err
		}
		if info, err := entry.Info(); err == nil {
			files[strings.TrimPrefix(path, root+"/")] = info.Size()
		}
		return nil
	})
	return files, err
}

// Lose removes all that the store keeps.
func (s *Server) Lose() error {
	var err error
	for range 100 {
		// Somebody may write meanwhile.
		if err = os.RemoveAll(s.path("data")); err == nil {
			return os.MkdirAll(s.path("data"), 0o700)
		}
	}
	return fmt.Errorf("lose what the object store keeps: %w", err)
}
