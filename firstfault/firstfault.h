// Umbrella: all of the public C++ API. With the component `live` (LibTorch) also Trace and Watch.
#pragma once

#include "firstfault/base/error.h"
#include "firstfault/events/origin.h"
#include "firstfault/present/html.h"
#include "firstfault/present/json.h"
#include "firstfault/present/text.h"
#include "firstfault/reason/engine.h"
#include "firstfault/record/run.h"

#ifdef FIRSTFAULT_LIVE
#include "firstfault/live/session.h"
#include "firstfault/live/watch.h"
#endif
