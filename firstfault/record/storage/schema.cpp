#include "firstfault/record/storage/schema.h"

namespace firstfault::record {

const char* const kSchema = R"sql(
CREATE TABLE run (
  id INTEGER PRIMARY KEY CHECK (id = 1), state TEXT NOT NULL, commits INTEGER NOT NULL, steps INTEGER NOT NULL,
  ops INTEGER NOT NULL, rows INTEGER NOT NULL, host TEXT NOT NULL, boot TEXT NOT NULL, pid_namespace TEXT NOT NULL,
  pid INTEGER NOT NULL, process_start INTEGER NOT NULL);
CREATE TABLE setup (id INTEGER PRIMARY KEY CHECK (id = 1), json TEXT NOT NULL);
CREATE TABLE modules (id INTEGER PRIMARY KEY, path TEXT NOT NULL, type TEXT NOT NULL, parameters INTEGER NOT NULL);
CREATE TABLE sites (
  id INTEGER PRIMARY KEY, role TEXT NOT NULL, module TEXT NOT NULL, name TEXT NOT NULL, op TEXT NOT NULL,
  dtype TEXT NOT NULL, shape TEXT NOT NULL, position INTEGER NOT NULL);
CREATE TABLE transitions (
  id INTEGER PRIMARY KEY, step INTEGER NOT NULL, site INTEGER NOT NULL REFERENCES sites, from_state TEXT NOT NULL,
  to_state TEXT NOT NULL, value REAL, baseline REAL, confidence REAL);
CREATE TABLE origins (
  id INTEGER PRIMARY KEY, step INTEGER NOT NULL, phase TEXT NOT NULL, op TEXT NOT NULL, module TEXT NOT NULL,
  param TEXT NOT NULL, outcome TEXT NOT NULL, json TEXT NOT NULL);
CREATE TABLE facts (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, module TEXT NOT NULL, op TEXT NOT NULL, detail TEXT NOT NULL,
  first_step INTEGER NOT NULL, last_step INTEGER NOT NULL, count INTEGER NOT NULL, numbers TEXT NOT NULL,
  file TEXT NOT NULL, line INTEGER NOT NULL);
CREATE TABLE actions (
  id INTEGER PRIMARY KEY, step INTEGER NOT NULL, action TEXT NOT NULL, fault TEXT NOT NULL, reason TEXT NOT NULL,
  json TEXT NOT NULL);
CREATE TABLE warnings (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE uninspected (what TEXT NOT NULL, tensors INTEGER NOT NULL);
CREATE TABLE site_totals (
  site INTEGER PRIMARY KEY REFERENCES sites, steps INTEGER NOT NULL, nonfinite_steps INTEGER NOT NULL,
  first_nonfinite_step INTEGER, rms_last REAL, rms_min REAL, rms_max REAL, rms_max_step INTEGER);
CREATE TABLE steps (
  step INTEGER PRIMARY KEY, seconds REAL, loss REAL, loss_state TEXT NOT NULL, gradient_norm REAL, update_ratio REAL,
  parameter_norm REAL, lr REAL, loss_scale REAL, backwards INTEGER NOT NULL, gradients_left_over INTEGER NOT NULL,
  skipped INTEGER NOT NULL, reset_state INTEGER NOT NULL, optimizer INTEGER NOT NULL, logged TEXT NOT NULL);
CREATE TABLE health (step INTEGER PRIMARY KEY REFERENCES steps, data BLOB NOT NULL);
CREATE VIEW events AS
  SELECT step, role, name AS site, module, position, from_state, to_state, value, baseline, confidence
  FROM transitions LEFT JOIN sites ON sites.id = transitions.site;
)sql";

}  // namespace firstfault::record
